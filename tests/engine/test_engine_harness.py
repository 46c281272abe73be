"""The harness against arithmetic that is known by hand, with configs written by hand."""

import pytest

from engine.harness import EngineFailed, Spec, World, run, run_ranks

pytestmark = [pytest.mark.engine, pytest.mark.slow]

WIDTH, INNER, LAYERS, VOCABULARY = 768, 2048, 2, 1024
LLAMA = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
}
BLOCK = 4 * WIDTH * WIDTH + 3 * WIDTH * INNER
EMBEDDING = VOCABULARY * WIDTH
MATRICES = LAYERS * BLOCK + 2 * EMBEDDING
NORMS = (2 * LAYERS + 1) * WIDTH


def config(params="none", optimizer="none", stage=3, **zero):
    """A config with everything that is read ahead or kept switched off, unless asked for."""
    section = {"stage": stage, "reduce_bucket_size": 2_000_000, **zero}
    if stage == 3:
        quiet = {"stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0}
        section = {**quiet, **section}
    if params != "none":
        section["offload_param"] = {"device": params}
    if params == "nvme":
        section["offload_param"] |= {"nvme_path": "/", "buffer_size": 2_000_000, "max_in_cpu": 0}
    if optimizer != "none":
        section["offload_optimizer"] = {"device": optimizer}
    if optimizer == "nvme":
        section["offload_optimizer"]["nvme_path"] = "/"
    return {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": section,
    }


@pytest.fixture(scope="module")
def all_on_nvme(tmp_path_factory):
    return run(config("nvme", "nvme"), Spec(LLAMA), World(), tmp_path_factory.mktemp("nvme"))


def test_counts_the_parameters(all_on_nvme):
    assert all_on_nvme.params == MATRICES + NORMS


def test_every_matrix_is_fetched_once_by_each_sweep(all_on_nvme):
    assert all_on_nvme.last["gathered_elements"] == 2 * MATRICES


def test_reads_and_writes_of_parameters_and_optimizer_on_nvme(all_on_nvme):
    """2F + 16 bytes read and 18 written per parameter: 16-bit, master, two moments, fp32 gradient."""
    read, written = sum(all_on_nvme.read_bytes.values()), sum(all_on_nvme.write_bytes.values())
    assert read == pytest.approx((2 * all_on_nvme.fetches + 16) * MATRICES, rel=0.01)
    assert written == pytest.approx(18 * MATRICES, rel=0.01)


def test_swap_files_by_class(all_on_nvme):
    state = 4 * (MATRICES + NORMS)
    expected = {"param": 2 * MATRICES, "gradient": 4 * MATRICES}
    expected |= {"master": state, "exp_avg": state, "exp_avg_sq": state}
    assert all_on_nvme.file_bytes == expected


def test_page_locked_memory_by_owner(all_on_nvme):
    """Each owner is the function of DeepSpeed that asks for the memory; sizes are its formulas."""
    aligned = 2_000_000 + -2_000_000 % 512
    locked = all_on_nvme.locked_bytes
    assert locked["partitioned_param_swapper._configure_aio"] == 2 * 5 * aligned
    assert locked["partition_parameters._partition_param"] == 2 * NORMS
    assert locked["stage3._setup_for_real_optimizer"] == 2 * (MATRICES + NORMS)
    assert locked["utils.__init__"] == 4 * 4 * (MATRICES + NORMS)


def test_one_matrix_is_live_at_a_time(all_on_nvme):
    assert all_on_nvme.peak["live_elements"] == WIDTH * INNER + NORMS
    assert all_on_nvme.peak["param_buffers"] == 1
    assert all_on_nvme.peak["optimizer_buffers"] == 4


@pytest.mark.parametrize(
    ("checkpointing", "again"),
    [("reentrant", BLOCK), ("non_reentrant", BLOCK - WIDTH * INNER)],
)
def test_recomputation_fetches_the_layers_again(tmp_path, checkpointing, again):
    """The non-reentrant kind still holds a layer's last matrix when the layer recomputes."""
    result = run(config("cpu", "cpu"), Spec(LLAMA, checkpointing=checkpointing), World(), tmp_path)
    assert result.last["gathered_elements"] == 2 * MATRICES + LAYERS * again


def test_two_ranks_share_the_work_and_a_simulated_one_does_the_same(tmp_path):
    swapped = config("nvme", "nvme")
    first, second = run_ranks(swapped, Spec(LLAMA), World(2), tmp_path / "real")
    simulated = run(swapped, Spec(LLAMA), World(2, simulated=True), tmp_path / "simulated")
    assert first.read_bytes == second.read_bytes == simulated.read_bytes
    assert first.write_bytes == second.write_bytes == simulated.write_bytes
    assert first.locked_bytes == second.locked_bytes == simulated.locked_bytes
    assert first.last["gathers"] == simulated.last["gathers"]


def test_losses_do_not_depend_on_the_place_of_the_state(tmp_path, all_on_nvme):
    on_gpu = run(config(), Spec(LLAMA), World(), tmp_path)
    assert on_gpu.losses == pytest.approx(all_on_nvme.losses, abs=1e-3)


def test_losses_do_not_depend_on_who_owns_a_tensor(tmp_path):
    """`round_robin_gradients` deals tensors out to the ranks; what is learned is the same."""
    learned = []
    for dealt_out in (False, True):
        asked = config("none", "cpu", stage=2, round_robin_gradients=dealt_out, overlap_comm=True)
        asked["gradient_accumulation_steps"] = 2
        ranks = run_ranks(asked, Spec(LLAMA), World(2), tmp_path / str(dealt_out))
        learned.append([rank.losses for rank in ranks])
    assert len(learned[0][0]) > 1
    assert learned[0][0] != learned[0][1]
    for left, right in zip(*learned, strict=True):
        assert left == pytest.approx(right, abs=1e-3)


def test_failure_shows_the_config_and_what_deepspeed_said(tmp_path):
    small = config("nvme")
    small["zero_optimization"]["offload_param"]["buffer_size"] = 1000
    with pytest.raises(EngineFailed) as failure:
        run(small, Spec(LLAMA), World(), tmp_path)
    assert '"buffer_size": 1000' in str(failure.value)
    assert "buffer size 1000" in str(failure.value)
