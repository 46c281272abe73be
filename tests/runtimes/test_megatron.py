"""Tensor and pipeline parallelism, with arithmetic of its own and that of the papers."""

from dataclasses import replace

import pytest
from runtimes.megatron_runs import MEGATRON, WORK, asked, box, held
from runtimes.toy import cluster, plan, toy, workload

from ziplan.errors import BadInput, CannotEmit
from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing, Placement
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.megatron.sliced import sliced
from ziplan.runtimes.shared.compute import MOVED, gpu_work
from ziplan.runtimes.shared.facts import Facts
from ziplan.simulate.step import simulate
from ziplan.solve.problem import Problem
from ziplan.solve.search import best_plan
from ziplan.workload.config import model_of
from ziplan.workload.kept import kept_bytes
from ziplan.workload.load import load_model
from ziplan.workload.training import Training, Workload

FULL, SELECTIVE, NONE = (
    float(mode) for mode in (Checkpointing.FULL, Checkpointing.SELECTIVE, Checkpointing.NONE)
)


def gpt(width, layers, heads, sequence=2048):
    """A GPT as the papers' models are, in fp16 with scores that are written out."""
    shape = {
        "model_type": "gpt2",
        "n_embd": width,
        "n_layer": layers,
        "n_head": heads,
        "n_positions": sequence,
        "vocab_size": 51200,
        "activation_function": "gelu",
    }
    model = model_of("gpt", shape, lambda *problem: pytest.fail(str(problem)))
    training = Training(sequence_length=sequence, attention="eager")
    return Workload(model, training, "fp16", kept_bytes(model, "eager", "fp16"))


@pytest.mark.parametrize(
    ("stage", "per_param"),
    [
        (0.0, {"fp16": 20, "bf16": 18, "fp32": 16}),
        (1.0, {"fp16": 4 + 16 / 4, "bf16": 6 + 12 / 4, "fp32": 8 + 8 / 4}),
    ],
)
@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32"])
def test_states_take_what_the_documentation_says(stage, per_param, precision):
    """The table of Megatron-LM's page on the distributed optimizer, for 4 replicas of a half each."""
    work = replace(WORK, precision=precision)
    answer = asked(work=work, zero_stage=stage, dp_degree=4.0, tp_degree=2.0)
    states = sum(held(answer, name)[1] for name in ("parameters and gradients", "optimizer state"))
    assert states == pytest.approx(per_param[precision] * work.model.params / 2)


@pytest.mark.parametrize(
    ("mode", "gib"),
    [(NONE, 59.25), (SELECTIVE, 9.5625), (FULL, 0.0764 * 59.25)],
    ids=["none", "selective", "full"],
)
def test_activations_are_those_of_the_paper(mode, gib):
    """22B on 8 GPUs, micro-batch 4: arXiv:2205.05198 figures 1 and 7, selective with sequence parallelism."""
    chosen = {"tp_degree": 8.0, "micro_batch_size": 4.0, "activation_checkpointing": mode}
    low, high = held(asked(load_cluster("dgx-a100-80g", []), gpt(6144, 48, 64), **chosen), "activations")
    assert low * 0.95 <= gib * 2**30 <= high * 1.05


def test_a_fused_softmax_saves_passes_over_the_scores():
    """Of 64 heads, 2048 x 2048 scores of 48 layers: 4 accesses of 2 bytes and a mask, in each of 3 sweeps."""
    work, machine = gpt(6144, 48, 64), box()
    (moved,) = [d for d in asked(machine, work).segments[0].chains[0] if d.term == MOVED]
    fused = replace(work, training=work.training.model_copy(update={"kernels": "fused"}))
    plain = gpu_work(Facts(Derivation(), machine, fused, plan()))[-1]
    assert plain.amount - moved.amount == pytest.approx(3 * 9 * 64 * 2048**2 * 48)
    flash = asked(machine, WORK).segments[0].chains[0]
    assert [d.amount for d in flash[:4]] == [
        d.amount for d in gpu_work(Facts(Derivation(), machine, WORK, plan()))
    ]


def test_all_reduces_move_what_the_paper_counts():
    """8 b s h (t - 1) / t elements a layer and micro-batch, half as many again where it is recomputed."""
    for mode, factor in ((NONE, 8), (FULL, 12)):
        answer = asked(tp_degree=4.0, activation_checkpointing=mode, accumulation_steps=3.0)
        read, _ = answer.traffic["fabric"]
        assert read == pytest.approx(3 * 8 * factor * 2048 * 8192 * 2 * 3 / 4)


def test_gradients_cross_the_network_in_as_many_rings_as_a_node_has():
    """Four nodes, 4 replicas of 8 GPUs each: 8 rings share a node's network."""
    machine = box(4)
    answer = asked(machine, dp_degree=4.0, tp_degree=8.0)
    read, _ = answer.traffic["network"]
    assert read == pytest.approx(8 * 2 * 2 * (WORK.model.params / 8) * 3 / 4)
    assert answer.terms["gradient exchange"] == pytest.approx(read / 50e9)
    divided = asked(machine, dp_degree=4.0, tp_degree=8.0, zero_stage=1.0)
    assert divided.traffic["network"][0] == pytest.approx(read), "fp16 gradients once, fp16 parameters once"
    inside = asked(dp_degree=2.0, tp_degree=4.0)
    assert inside.traffic["network"] == (0.0, 0.0)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"zero_stage": 3.0, "pp_degree": 2.0}, "do not go with a pipeline"),
        ({"zero_stage": 3.0, "tp_degree": 3.0}, "tp_degree 3 does not divide 8 attention heads"),
        ({"zero_stage": 2.0, "placement": Placement(params={"dram": 1.0})}, "stage 3"),
        ({"tp_degree": 3.0}, "tp_degree 3 does not divide 8 attention heads"),
        ({"pp_degree": 3.0}, "pp_degree 3 does not divide 8 layers"),
        ({"tp_degree": 8.0, "pp_degree": 2.0}, "more than the 8 GPUs"),
        ({"vpp_degree": 2.0}, "pp_degree 1 has none"),
        ({"pp_degree": 4.0, "vpp_degree": 3.0}, "vpp_degree 3 does not divide the 2 layers of a stage"),
        (
            {"pp_degree": 4.0, "vpp_degree": 2.0, "accumulation_steps": 6.0},
            "accumulation_steps 6 are no multiple of pp_degree 4",
        ),
        ({"tile_count": 2.0}, "no tiling"),
        ({"placement": Placement(optimizer={"dram": 1.0})}, "below stage 2 everything stays on the GPU"),
    ],
)
def test_what_it_cannot_do_is_said(fields, said):
    machine = box()
    chosen = plan(**{"zero_stage": 0.0, **fields})
    assert said in MEGATRON.refusals(machine, WORK, chosen)[0]
    with pytest.raises(CannotEmit):
        MEGATRON.emit(machine, WORK, chosen)


def test_tensor_parallelism_stays_in_a_node():
    machine = box(4, 2)
    reasons = MEGATRON.refusals(machine, WORK, plan(zero_stage=0.0, tp_degree=8.0))
    assert reasons == [
        "tp_degree 8 does not divide the 2 GPUs of a node: tensor parallelism is planned within a node"
    ]


def test_a_search_stays_at_degree_1():
    degrees = {name: axis for axis in MEGATRON.axes(box(), WORK) for name in axis.choices[0]}
    assert degrees["tp_degree"].choices == ({"tp_degree": 1.0, "pp_degree": 1.0, "vpp_degree": 1.0},)
    with pytest.raises(BadInput, match="adamw only"):
        MEGATRON.axes(cluster(), workload(toy(), optimizer={"kind": "lion"}))


def test_the_script_says_what_was_planned():
    machine = box(4)
    chosen = plan(
        zero_stage=1.0,
        dp_degree=2.0,
        tp_degree=8.0,
        pp_degree=2.0,
        vpp_degree=4.0,
        micro_batch_size=2.0,
        accumulation_steps=4.0,
        activation_checkpointing=SELECTIVE,
    )
    script = MEGATRON.emit(machine, WORK, chosen)["launch.sh"]
    for argument in (
        "--tensor-model-parallel-size 8",
        "--pipeline-model-parallel-size 2",
        "--num-virtual-stages-per-pipeline-rank 4",
        "--micro-batch-size 2",
        "--global-batch-size 16",
        "--use-distributed-optimizer",
        "--recompute-activations",
        "--sequence-parallel",
        "--fp16",
        "--nnodes 4",
    ):
        assert f"{argument} " in script, argument
    with pytest.raises(CannotEmit, match="trainer"):
        MEGATRON.emit(machine, WORK, chosen, trainer="huggingface")


def test_the_laws_are_recorded():
    derivation = Derivation()
    MEGATRON.program(derivation, box(), WORK, plan(zero_stage=0.0, tp_degree=8.0))
    assert {"all_reduced_bytes", "divided_flops", "idle_micro_steps", "step_flops"} <= {
        step.law.name for step in derivation.steps
    }


# DeepSpeed's stages 2 and 3 of a slice.


def halves(**fields):
    """Stage 3 of half a model on each GPU, with all that DeepSpeed can offload on the host."""
    homes = Placement({"dram": 1.0}, {"dram": 1.0}, {"dram": 1.0}, {"hbm": 1.0})
    return {
        "zero_stage": 3.0,
        "placement": homes,
        "dp_degree": 4.0,
        "tp_degree": 2.0,
        "prefetch_depth": 1.0,
        **fields,
    }


def test_a_slice_is_a_part_of_every_matrix():
    model, part = WORK.model, sliced(WORK, 4).model
    whole = {o.name: o for o in model.operators}
    for operator in part.operators:
        times = 1 if operator.kind == "norm" else 4
        assert times * operator.params == whole[operator.name].params, operator.name
    assert (part.attention_heads, part.vocab_size, part.attention_width) == (
        2,
        12800,
        model.attention_width / 4,
    )
    assert sliced(WORK, 1) is WORK


@pytest.mark.parametrize("home", ["hbm", "dram", "nvme"])
def test_of_one_slice_it_is_deepspeed(home):
    """Without tensor parallelism nothing is different, but by which name bytes between GPUs go."""
    machine = box()
    chosen = plan(home, home, dp_degree=8.0, prefetch_depth=1.0)
    answers = {}
    for name in ("megatron", "deepspeed"):
        runtime = RUNTIMES[name]
        answers[name] = estimate(machine, WORK, runtime, runtime.settle(machine, WORK, chosen))
    ours, theirs = answers["megatron"], answers["deepspeed"]
    assert ours.step_time == pytest.approx(theirs.step_time, rel=1e-12)
    for tier, memory in theirs.memory.items():
        assert (ours.memory[tier].low, ours.memory[tier].high) == (memory.low, memory.high)
    assert ours.traffic["fabric"] == theirs.traffic["gather"]


def test_all_gpus_of_a_node_keep_their_slices_on_the_host():
    """Optimizer state and updates of the whole model, whatever it is divided by."""
    found, updated = {}, {}
    for tensor in (1.0, 2.0, 4.0):
        answer = asked(**halves(tp_degree=tensor, dp_degree=8 / tensor))
        lines = [line for line in answer.ledger.lines if line.tier == "dram"]
        found[tensor] = sum(line.high for line in lines if line.name == "optimizer state")
        demands = {id(d): (s.repeats, d) for s in answer.segments for chain in s.chains for d in chain}
        on_cpu = [times * d.amount for times, d in demands.values() if d.resource == "cpu_optimizer"]
        updated[tensor] = sum(on_cpu)
    for each in (found, updated):
        assert each[1.0] >= WORK.model.params
        assert each[2.0] == pytest.approx(each[1.0], rel=1e-3)
        assert each[4.0] == pytest.approx(each[1.0], rel=1e-3)


def test_rings_of_slices_share_the_network():
    """Two nodes of 8 GPUs: every GPU gathers a fourth of the model, and four rings at once do."""
    machine = box(2)
    alone, divided = (
        asked(machine, **halves(placement=Placement(), tp_degree=tensor, dp_degree=16 / tensor))
        for tensor in (1.0, 4.0)
    )
    (whole, _), (part, _) = alone.traffic["network"], divided.traffic["network"]
    assert part == pytest.approx(whole * (1 - 1 / 4) / (1 - 1 / 16), rel=1e-3)
    assert divided.traffic["fabric"][0] == pytest.approx(8 * 13 * 2048 * 8192 * 2 * 3 / 4)


def test_a_step_of_slices_is_played():
    machine = box(2)
    answer = asked(machine, **halves(dp_degree=8.0, accumulation_steps=2.0))
    simulation = simulate(machine, WORK, MEGATRON, answer.plan)
    assert answer.step_time * 0.5 < simulation.makespan < answer.step_time * 1.5
    with pytest.raises(CannotEmit, match="no files are written"):
        MEGATRON.emit(machine, WORK, answer.plan)


@pytest.mark.parametrize(("tensor", "stages", "replicas"), [(8, 1, 1), (8, 4, 2), (2, 8, 2)])
def test_of_few_tokens_neither_a_faster_gpu_nor_less_work_takes_longer(tensor, stages, replicas):
    """Weights are read once however few the tokens; what products hide of that is divided as they are."""
    fields = {"tp_degree": float(tensor), "pp_degree": float(stages), "dp_degree": float(replicas)}

    def time(factor, sequence):
        rates = dict.fromkeys(("fp16", "bf16", "fp32"), f"{factor * 100} TFLOP/s")
        gpu = {"name": "Chip", "memory": {"capacity": "640 GB"}, "peak_flops_per_s": rates}
        machine = cluster(4, 8, hbm="640 GB", gpu=gpu | {"sustained_flops_per_s": rates})
        work = workload(toy(8, 8192, 32768, 51200), sequence_length=sequence, precision="fp16")
        return asked(machine, work, **fields).step_time

    lengths = (16, 32, 64, 128, 256)
    for factor in (1, 2, 4):
        times = [time(factor, sequence) for sequence in lengths]
        assert times == sorted(times)
    for sequence in lengths:
        times = [time(factor, sequence) for factor in (4, 2, 1)]
        assert times == sorted(times)


@pytest.mark.parametrize("shape", ["phi-2", "opt-2.7b"])
def test_where_waves_are_counted_fewer_tokens_take_no_longer_either(shape):
    """An A100's products of few tokens leave it idle, and weights come in meanwhile."""
    machine, model = load_cluster("dgx-a100-80g"), load_model(shape)

    def time(runtime, sequence):
        training = Training(sequence_length=sequence, precision="bf16")
        work = Workload(model, training, "bf16", kept_bytes(model, "flash", "bf16"))
        chosen = plan(dp_degree=8.0, zero_stage=1.0)
        return estimate(machine, work, runtime, runtime.settle(machine, work, chosen)).step_time

    for runtime in (MEGATRON, RUNTIMES["deepspeed"]):
        times = [time(runtime, sequence) for sequence in (16, 32, 48, 64, 96, 128, 192, 256, 512)]
        assert times == sorted(times)


def test_the_solver_plans_megatron_where_waves_are_counted():
    """A grid of plans is one array of degrees."""
    work = replace(WORK, precision="bf16")
    answer = best_plan(Problem(load_cluster("dgx-a100-80g"), work, MEGATRON))
    assert answer.terms.get("partial waves", 0.0) > 0
