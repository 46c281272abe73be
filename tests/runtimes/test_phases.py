"""Memory by phase: what stands on GPU and host while a model is loaded, initialised and saved."""

import pytest
from runtimes.toy import cluster, plan, workload

from ziplan.estimate.evaluate import memory
from ziplan.laws.law import Derivation
from ziplan.runtimes import RUNTIMES
from ziplan.workload.loading import Loading

WORK = workload()
P = WORK.model.params
GB = 1e9


def told(work=WORK, **settings):
    """The workload with more of its training stated."""
    training = work.training.model_copy(update=settings)
    return type(work)(work.model, training, work.precision, work.activations)


def ledger(work, chosen, machine=None, runtime="deepspeed"):
    machine, real = machine or cluster(gpus=8), RUNTIMES[runtime]
    return real.ledger(Derivation(record=False), machine, work, real.settle(machine, work, chosen))


def line(book, tier, name, phase):
    """(low, high) of the one line of that name."""
    (found,) = [one for one in book.lines if (one.tier, one.name) == (tier, name) and phase in one.phases]
    return found.low, found.high


BELOW = plan("hbm", "dram", dp_degree=8.0, zero_stage=2.0)
DIVIDED = plan("dram", "dram", dp_degree=8.0)


def test_below_stage_3_every_rank_loads_the_model_in_fp32_or_16_bit():
    assert line(ledger(WORK, BELOW), "dram", "model on every rank", "load") == (8 * 2 * P, 8 * 4 * P)


@pytest.mark.parametrize(
    ("loading", "low", "high"),
    [
        (Loading(dtype="fp32"), 8 * 4 * P, 8 * 4 * P),
        (Loading(dtype="bf16"), 8 * 2 * P, 8 * 2 * P),
        (Loading(dtype="bf16", copies="rank_0"), 2 * P, 2 * P),
        (Loading(copies="rank_0"), 2 * P, 4 * P),
    ],
)
def test_what_is_said_of_loading_narrows_it(loading, low, high):
    book = ledger(told(loading=loading), BELOW)
    assert line(book, "dram", "model on every rank", "load") == (low, high)
    assert line(book, "dram", "model not yet freed", "init") == (0, high)


def test_zero_init_divides_the_model_as_it_is_made():
    book = ledger(WORK, DIVIDED)
    assert line(book, "dram", "model on every rank", "load") == (0, 0)
    assert line(book, "hbm", "model before it is divided", "init") == (0, 0)
    assert line(book, "dram", "checkpoint file", "load") == (0, 8 * min(4 * P, 5 * GB))


def test_without_zero_init_stage_3_has_the_whole_model_on_every_gpu_at_first():
    """A stage-3 run on 1 to 4 nodes reached 2 bytes per parameter on each GPU, whatever the nodes
    (https://github.com/deepspeedai/DeepSpeed/issues/2899)."""
    book = ledger(told(loading=Loading(zero_init=False)), DIVIDED)
    assert line(book, "hbm", "model before it is divided", "init") == (2 * P, 2 * P)
    assert line(book, "dram", "model on every rank", "load") == (16 * P, 32 * P)


def test_a_file_that_every_rank_reads_counts_for_each():
    """T5-11B came as one file of 45 GB (https://github.com/deepspeedai/DeepSpeed/issues/2946)."""
    book = ledger(told(loading=Loading(largest_file="45 GB", copies="every_rank")), DIVIDED)
    assert line(book, "dram", "checkpoint file", "load") == (8 * 45 * GB, 8 * 45 * GB)
    book = ledger(told(loading=Loading(largest_file="45 GB")), DIVIDED)
    assert line(book, "dram", "checkpoint file", "load") == (0, 8 * 45 * GB)


@pytest.mark.parametrize(("saving", "bytes_per_param"), [("sharded", 0), ("gathered", 2)])
def test_stage_3_gathers_the_weights_on_rank_0_only_when_asked(saving, bytes_per_param):
    saved = line(ledger(told(saving=saving), DIVIDED), "dram", "weights to be saved", "save")
    assert saved == (bytes_per_param * P, bytes_per_param * P)


def test_below_stage_3_rank_0_clones_the_weights_to_save_them():
    assert line(ledger(WORK, BELOW), "dram", "weights to be saved", "save") == (2 * P, 2 * P)


def test_fsdp_gathers_fp32_weights_when_asked():
    book = ledger(told(saving="gathered"), DIVIDED, runtime="fsdp")
    assert line(book, "dram", "weights to be saved", "save") == (4 * P, 4 * P)


def test_data_loader_workers_are_processes_of_every_rank():
    low, high = line(ledger(told(data_workers=4), DIVIDED), "dram", "data-loader workers", "step")
    assert (low, high) == pytest.approx((32 * 0.07 * GB, 32 * 1.0 * GB))
    assert line(ledger(WORK, DIVIDED), "dram", "data-loader workers", "step") == (0, 0)


def test_pinned_blocks_round_up_to_powers_of_two_where_pytorch_rounds():
    exact, rounded = (ledger(told(pinned_rounding=on), DIVIDED) for on in (False, True))
    name = "gradient accumulation buffer"
    asked = 2 * P / 8
    block = 2 ** (int(asked) - 1).bit_length()
    assert line(exact, "dram", name, "step") == (2 * P, 2 * P)
    assert line(rounded, "dram", name, "step") == (2 * P, 8 * block)
    for pinned in rounded.lines:
        assert pinned.high <= 2 * pinned.low or not pinned.pinned


def test_swap_buffers_count_against_what_a_process_may_lock():
    chosen, work = plan("nvme", "nvme", dp_degree=8.0), WORK
    machine = cluster(gpus=8)
    assert "memlock" not in memory(machine, ledger(work, chosen, machine))
    node = machine.node.model_copy(update={"memlock_limit": 8 * 2**20})
    limited = type(machine)(node, machine.nodes)
    book = ledger(work, chosen, limited)
    need = memory(limited, book)["memlock"]
    swapped = [
        one for one in book.lines if one.tier == "dram" and one.name.endswith(("swap buffers", "back buffer"))
    ]
    assert len(swapped) == 3
    assert need.phases["step"] == pytest.approx((sum(one.high for one in swapped) / 8,) * 2)
    assert need.low > need.available


def phases(book, tier, name):
    return {
        phase
        for one in book.lines
        if (one.tier, one.name) == (tier, name) and one.high
        for phase in one.phases
    }


def test_stage_3_has_its_gradients_from_the_start_and_the_others_with_backward():
    """`stage3.py:_setup_for_real_optimizer` makes one flat buffer; stage 2 keeps what backward leaves."""
    divided = ledger(WORK, plan("hbm", "hbm", dp_degree=8.0))
    assert phases(divided, "hbm", "gradient shard") == {"init", "forward", "backward", "step", "save"}
    assert not phases(divided, "hbm", "gradients")
    below = ledger(WORK, plan("hbm", "hbm", dp_degree=8.0, zero_stage=2.0))
    assert phases(below, "hbm", "gradients") == {"backward"}
    assert phases(below, "hbm", "gradients at the step") == {"step"}
    assert not phases(below, "hbm", "gradients of earlier micro-steps")
    again = ledger(WORK, plan("hbm", "hbm", dp_degree=8.0, zero_stage=1.0, accumulation_steps=2.0))
    assert line(again, "hbm", "gradients of earlier micro-steps", "forward") == (2 * P, 2 * P)


def test_master_weights_on_the_host_come_from_a_clone_on_the_gpu():
    assert line(ledger(WORK, BELOW), "hbm", "clone of the shard", "init") == (2 * P / 8, 2 * P / 8)
    assert line(ledger(WORK, DIVIDED), "hbm", "clone of the shard", "init") == (0, 0)


def test_stage_2_has_reduce_buckets_while_backward_runs_and_stage_3_from_the_start():
    below, divided = (
        {phase for one in ledger(WORK, each).lines if one.name == "reduce buckets" for phase in one.phases}
        for each in (BELOW, DIVIDED)
    )
    assert below == {"backward"}
    assert {"init", "forward", "step"} < divided


def test_stage_3_pins_a_copy_of_its_gradient_buffer():
    assert line(ledger(WORK, DIVIDED), "dram", "buffer before it is pinned", "init") == (0, 2 * P)
    assert line(ledger(WORK, BELOW), "dram", "buffer before it is pinned", "init") == (0, 0)


@pytest.mark.parametrize(("fused", "low", "high"), [(True, 0, 0), (False, 1, 1), (None, 0, 1)])
def test_an_optimizer_that_is_not_fused_makes_a_temporary(fused, low, high):
    """Llama-7B on 8 ranks in stage 2 died asking for 4 bytes of each parameter of its shard
    (https://github.com/hiyouga/LLaMA-Factory/issues/1221)."""
    optimizer = WORK.training.optimizer.model_copy(update={"fused": fused})
    book = ledger(told(optimizer=optimizer), plan("hbm", "hbm", dp_degree=8.0, zero_stage=2.0))
    found = line(book, "hbm", "temporary of the optimizer", "step")
    assert found == pytest.approx((low * 4 * P / 8, high * 4 * P / 8))
