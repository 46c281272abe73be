"""What a GPU does in a micro-step: products at their rates, all else by its bytes, Python beside it."""

from dataclasses import replace
from functools import partial

import pytest
from runtimes.toy import HIDDEN, MIDDLE, VOCABULARY, cluster, plan, toy, workload
from workload.models import shipped

from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.hardware.rates import (
    ATTENTION,
    FLASH_2,
    IDLE,
    MATRIX,
    WAVES_OF_THAT_RUN,
    attention_rate,
    flash_2_rate,
)
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.facts import Facts as DeepSpeedFacts
from ziplan.runtimes.deepspeed.hooks import HOOK_LATENCY, REDUCED_VIEWS, VIEW_LATENCY
from ziplan.runtimes.deepspeed.traits import traits_of
from ziplan.runtimes.fsdp.facts import Facts as FsdpFacts
from ziplan.runtimes.shared.compute import gpu_work, matrix_flops, micro_step_flops
from ziplan.runtimes.shared.facts import Facts
from ziplan.runtimes.shared.launches import BACKWARD_LATENCY, FORWARD_LATENCY, OUTSIDE, latencies
from ziplan.study.records import load_runs, shipped_files
from ziplan.study.validate import estimated
from ziplan.workload.kept import kept_bytes
from ziplan.workload.training import Training, Workload

LAYERS, TOKENS = 4, 2048
MATRICES = LAYERS * (4 * HIDDEN**2 + 2 * HIDDEN * MIDDLE)
HEAD = HIDDEN * VOCABULARY


def facts(tokens=TOKENS, mode=Checkpointing.NONE, **training):
    work = workload(toy(LAYERS), sequence_length=tokens, **training)
    return Facts(Derivation(), cluster(), work, plan(activation_checkpointing=float(mode)))


def demands(f):
    return {demand.term: demand for demand in gpu_work(f)}


def times(runtime, works, **fields):
    machine = cluster(gpus=4)
    chosen = [
        plan(dp_degree=4.0, **{name: value[n] for name, value in fields.items()}) for n in range(len(works))
    ]
    return [
        float(estimate(machine, work, RUNTIMES[runtime], each).step_time)
        for work, each in zip(works, chosen, strict=True)
    ]


@pytest.mark.parametrize("mode", [Checkpointing.NONE, Checkpointing.FULL])
def test_fused_attention_has_a_rate_of_its_own(mode):
    f, full = facts(mode=mode, attention="flash"), float(mode == Checkpointing.FULL)
    work = demands(f)
    attention = 4 * TOKENS * HIDDEN * LAYERS * 0.5 * (3 + full) * TOKENS
    assert work["compute"].resource == MATRIX
    assert work["attention"].resource == ATTENTION
    assert work["compute"].amount == TOKENS * (6 * (MATRICES + HEAD) + full * 2 * MATRICES)
    assert work["attention"].amount == attention
    assert micro_step_flops(f) == work["compute"].amount + attention


def test_scores_that_are_written_out_are_products_and_bytes():
    fused, written = demands(facts(attention="flash")), facts(attention="eager")
    work = demands(written)
    assert work["attention"].amount == 0
    assert work["compute"].amount == fused["compute"].amount + 2 * fused["attention"].amount
    more = work["GPU memory"].amount - fused["GPU memory"].amount
    # 10 accesses of 2 bytes and 2 masks forward, 13 and 2 backward.
    assert more == (22 + 28) * written.workload.model.attention_heads * TOKENS * LAYERS * TOKENS


def test_recomputation_without_reentrance_stops_before_the_last_matrix_of_a_layer():
    work = workload(toy(LAYERS), sequence_length=TOKENS)
    modes = [plan(activation_checkpointing=float(m)) for m in (Checkpointing.NONE, Checkpointing.FULL)]

    def again(facts):
        none, full = (matrix_flops(facts(Derivation(), cluster(), work, mode)) for mode in modes)
        return full - none

    whole, last = 2 * TOKENS * MATRICES, 2 * TOKENS * LAYERS * HIDDEN * MIDDLE
    assert again(Facts) == whole
    assert again(FsdpFacts) == again(DeepSpeedFacts) == whole - last
    before_5 = partial(DeepSpeedFacts, traits=traits_of("0.16.9"))
    assert again(before_5) == whole


def waves(tokens=TOKENS, multiprocessors=64, mode=Checkpointing.NONE, **training):
    """What one micro-step leaves idle, on a GPU of so many multiprocessors."""
    machine = cluster()
    gpu = machine.node.gpu.model_copy(update={"multiprocessors": multiprocessors})
    machine = replace(machine, node=machine.node.model_copy(update={"gpu": gpu}))
    work = workload(toy(LAYERS), sequence_length=tokens, **training)
    return Facts(Derivation(), machine, work, plan(activation_checkpointing=float(mode)))


def test_a_gpu_without_a_number_of_multiprocessors_has_full_waves():
    assert demands(facts())["partial waves"].amount == 0
    assert demands(waves(precision="fp32"))["partial waves"].amount == 0


@pytest.mark.parametrize(("mode", "again"), [(Checkpointing.NONE, 0), (Checkpointing.FULL, 1)])
def test_what_waves_leave_idle_is_counted_product_by_product(mode, again):
    """All tiles fit into one wave of so many multiprocessors, which take one each; the best are square."""
    many = 10_000
    f = waves(multiprocessors=many, mode=mode)
    work = demands(f)
    assert work["partial waves"].resource == IDLE
    wave = many * 128 * 128 / 0.95
    # Depth of each product: forward and recomputation, gradients of inputs, gradients of weights.
    shapes = [(HIDDEN, 3 * HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, MIDDLE), (MIDDLE, HIDDEN)]
    layer = sum(2 * wave * ((1 + again) * i + o + TOKENS) for i, o in shapes)
    head = 2 * wave * (HIDDEN + VOCABULARY + TOKENS)
    time = LAYERS * layer + head
    assert work["partial waves"].amount == pytest.approx(time - work["compute"].amount)


def test_the_rate_of_full_waves_is_from_the_run_that_it_names():
    name = "llm-foundry-7b-8a100-80g-2048x6"
    (run,) = (each for each in load_runs(shipped_files()) if each.entry.id == name)
    terms = estimated(run).terms
    stretch = 1 + terms["partial waves"] / terms["compute"]
    assert stretch == pytest.approx(WAVES_OF_THAT_RUN, abs=5e-5)
    assert run.entry.calibration


def test_idle_flops_are_no_flops():
    f = waves()
    answer = estimate(f.cluster, f.workload, RUNTIMES["fsdp"], f.plan)
    assert answer.terms["partial waves"] > 0
    assert answer.hardware_flops == pytest.approx(micro_step_flops(f))


def test_a_slice_of_a_matrix_fills_fewer_waves_than_the_matrix():
    """As many FLOPs in all, in halves of each result that leave a larger part of their last wave empty."""
    machine = waves(multiprocessors=108).cluster
    work = workload(toy(LAYERS), sequence_length=TOKENS)
    whole, halves = (
        estimate(machine, work, RUNTIMES["megatron"], plan(zero_stage=0.0, tp_degree=degree))
        for degree in (1.0, 2.0)
    )
    shares = [answer.terms["partial waves"] / answer.terms["compute"] for answer in (whole, halves)]
    assert shares[1] > shares[0]


@pytest.mark.parametrize(
    ("mode", "passes"), [(Checkpointing.NONE, 5), (Checkpointing.FULL, 7), (Checkpointing.SELECTIVE, 5)]
)
def test_activations_are_moved_in_each_sweep_and_logits_by_the_loss(mode, passes):
    """120 bytes a width forward, 180 backward: attention's core alone, when recomputed, moves none of it."""
    moved = demands(facts(mode=mode))["GPU memory"].amount
    assert moved == TOKENS * (passes * LAYERS * 60 * HIDDEN + 36 * VOCABULARY)


def llama(kernels, loss=None):
    model = shipped("llama-2-7b")
    training = Training(sequence_length=TOKENS, micro_batch_size=1, kernels=kernels, loss=loss)
    return Workload(model, training, "bf16", kept_bytes(model, "flash", "bf16"))


@pytest.mark.parametrize("runtime", ["deepspeed", "fsdp"])
def test_modules_as_written_move_more_than_fused_ones_and_megatrons_are_fused(runtime):
    def moved(name, kernels):
        return float(estimate(cluster(), llama(kernels), RUNTIMES[name], plan()).terms["GPU memory"])

    assert moved(runtime, None) == moved(runtime, "eager") > 2 * moved(runtime, "fused")
    assert moved(runtime, "fused") > moved(runtime, "compiled"), "whose loss is compiled too"
    assert moved("megatron", None) == moved("megatron", "fused") < moved("megatron", "eager")


def test_few_tokens_wait_for_the_launches_of_all_kernels():
    """Layers forward and backward, what is outside of them, a kernel for every gradient."""
    work = llama("eager")
    written = work.activations.written
    forward = 32 * written.forward_kernels + OUTSIDE
    backward = 32 * written.backward_kernels + OUTSIDE + 32 * 9 + 3
    answer = on_fsdp(replace(work, training=with_tokens(work, 1)), quick_memory())
    assert answer.terms["kernel launches"] == pytest.approx(
        forward * FORWARD_LATENCY + backward * BACKWARD_LATENCY
    )
    assert "compute" not in answer.terms, "which takes less, and runs behind"
    assert "kernel launches" not in on_fsdp(work).terms


def on_fsdp(work, machine=None):
    chosen = plan(activation_checkpointing=float(Checkpointing.NONE))
    return estimate(machine or cluster(), work, RUNTIMES["fsdp"], chosen)


def quick_memory():
    """A machine whose GPU passes through its memory in no time."""
    box = cluster()
    memory = box.node.tiers["hbm"].model_copy(update={"read_bandwidth": 1e30})
    return replace(box, node=box.node.model_copy(update={"tiers": {**box.node.tiers, "hbm": memory}}))


def with_tokens(work, tokens):
    return work.training.model_copy(update={"sequence_length": tokens})


def test_a_grace_takes_longer_to_launch_a_kernel():
    f = facts()
    grace = f.cluster.node.cpu.model_copy(update={"name": "4 x Grace"})
    node = f.cluster.node.model_copy(update={"cpu": grace})
    on_grace = latencies(replace(f, cluster=replace(f.cluster, node=node)))
    assert all(slow > 2 * fast for slow, fast in zip(on_grace, latencies(f), strict=True))


def test_few_tokens_wait_for_the_weights():
    """One token: every matrix is read or written in 3 products, which themselves take next to nothing."""
    moved = demands(facts(tokens=1))["GPU memory"].amount
    weights = 3 * 2 * (MATRICES + HEAD)
    assert weights * 0.98 < moved < weights * 1.1


@pytest.mark.parametrize("runtime", ["deepspeed", "fsdp", "ideal"])
@pytest.mark.parametrize("mode", [Checkpointing.NONE, Checkpointing.FULL])
def test_more_tokens_or_a_wider_model_never_take_less_time(runtime, mode):
    batches = [1.0, 2.0, 3.0, 8.0, 64.0, 1000.0]
    modes = [float(mode)] * len(batches)
    longer = times(
        runtime,
        [workload(toy(LAYERS)) for _ in batches],
        micro_batch_size=batches,
        activation_checkpointing=modes,
    )
    # Matrices of narrower ones stay gathered, and are brought up to date one by one.
    widths = [320, 512, 1024, 2048, 8192]
    wider = times(
        runtime,
        [workload(toy(LAYERS, width, 4 * width)) for width in widths],
        activation_checkpointing=modes[: len(widths)],
    )
    assert longer == sorted(longer)
    assert wider == sorted(wider)


def test_hooks_of_stage_3_are_the_floor_of_a_micro_step():
    """6 modules a layer, visited forward, in recomputation and backward; 3 outside, forward and backward."""
    inside, outside = 6 * LAYERS, 3
    answers = {
        stage: estimate(
            cluster(gpus=4),
            workload(toy(LAYERS)),
            RUNTIMES["deepspeed"],
            plan(dp_degree=4.0, zero_stage=stage, activation_checkpointing=float(Checkpointing.FULL)),
        )
        for stage in (2.0, 3.0)
    }
    views = REDUCED_VIEWS * 4 * (8 * LAYERS + 4)  # of each rank's part of each tensor's gradient
    seconds = HOOK_LATENCY * (3 * inside + 2 * outside) + VIEW_LATENCY * views
    assert answers[3.0].terms["Python hooks"] == pytest.approx(seconds)
    assert "compute" not in answers[3.0].terms, "which takes less, and runs behind"
    assert "Python hooks" not in answers[2.0].terms


def test_the_second_flash_attention_has_the_rate_that_was_measured():
    """173 TFLOP/s of 3.5 times forward's FLOPs are 148 of the 3 times that are counted, on an A100."""
    named, any_kernel = (facts(attention="flash", attention_kernel=kernel) for kernel in ("flash-2", None))
    first, second = demands(named)["attention"], demands(any_kernel)["attention"]
    assert (first.resource, first.amount) == (FLASH_2, second.amount)
    node = load_cluster("dgx-a100-80g", []).node
    assert flash_2_rate(node, "bf16").value == pytest.approx(173e12 * 6 / 7)
    bare = node.model_copy(update={"gpu": node.gpu.model_copy(update={"flash_2_flops_per_s": {}})})
    assert flash_2_rate(bare, "bf16").value == pytest.approx(173e12 * 6 / 7, rel=0.01)
    assert attention_rate(node, "bf16").value < 0.7 * flash_2_rate(node, "bf16").value


def test_a_step_with_the_second_flash_attention_does_as_many_flops_in_less_time():
    machine, fields = load_cluster("dgx-a100-80g", []), {"dp_degree": 8.0, "zero_stage": 3.0}
    for name in ("deepspeed", "fsdp", "megatron"):
        chosen = plan(**(fields | ({} if name == "fsdp" else {"zero_stage": 1.0})))
        slow, fast = (
            estimate(machine, workload(toy(8), sequence_length=8192, **kernel), RUNTIMES[name], chosen)
            for kernel in ({}, {"attention_kernel": "flash-2"})
        )
        assert fast.hardware_flops == slow.hardware_flops
        assert fast.step_time < slow.step_time


def test_a_kernel_of_fused_attention_goes_with_fused_attention():
    with pytest.raises(ValueError, match="it goes with attention: flash"):
        Training(sequence_length=8, attention="eager", attention_kernel="flash-2")
