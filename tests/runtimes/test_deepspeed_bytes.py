"""DeepSpeed's bytes against what runs of 0.19.8 allocated, wrote and read, with arithmetic of its own."""

import pytest
from runtimes.toy import cluster, plan, toy, workload

from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing, Plan
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.coordinator import Policy
from ziplan.runtimes.deepspeed.fetches import fetches

DEEPSPEED = RUNTIMES["deepspeed"]
NONE, FULL = float(Checkpointing.NONE), float(Checkpointing.FULL)
BIG = toy(8, hidden=8192, middle=32768)


def settled(machine, work, chosen):
    return DEEPSPEED.settle(machine, work, chosen)


def book(machine, work, chosen):
    """Bytes of each ledger line, (tier, name) to (high, pinned), in the init phase or while it stands."""
    ledger = DEEPSPEED.ledger(Derivation(), machine, work, settled(machine, work, chosen))
    return {(line.tier, line.name): line for line in ledger.lines}


def host_bytes_per_param(machine, work, chosen, names):
    lines = book(machine, work, chosen)
    chosen_lines = [lines["dram", name] for name in names]
    pinned = sum(line.high for line in chosen_lines if line.pinned)
    params = work.model.params
    return sum(line.high for line in chosen_lines) / params, pinned / params


STATES = (
    "master weights",
    "optimizer state",
    "fp32 gradients",
    "gradient accumulation buffer",
    "parameters",
    "parameters as first partitioned",
)


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize(
    ("params", "optimizer", "total", "pinned"),
    [("dram", "dram", 22, 10), ("hbm", "dram", 18, 6), ("hbm", "nvme", 2, 2), ("dram", "nvme", 6, 6)],
)
def test_host_bytes_per_parameter(gpus, params, optimizer, total, pinned):
    """22 with both on the CPU, 18 with the optimizer alone; optimizer on NVMe leaves the gradient buffer."""
    machine, work = cluster(gpus=gpus), workload(BIG)
    found = host_bytes_per_param(machine, work, plan(params, optimizer, dp_degree=float(gpus)), STATES)
    assert found == pytest.approx((total, pinned), rel=1e-6)


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_node_holds_its_ranks_share(nodes):
    work = workload(BIG)
    machine = cluster(nodes=nodes, gpus=8)
    found = host_bytes_per_param(machine, work, plan("dram", "dram", dp_degree=8.0 * nodes), STATES)
    assert found[0] == pytest.approx(22 / nodes, rel=1e-5)


def test_files_are_18_bytes_per_parameter():
    """As the runs with two layers left them: 2 of parameters, 4 of gradients, 12 of state (norms stay)."""
    lines = book(cluster(), workload(), plan("nvme", "nvme"))
    assert lines["nvme", "parameter files"].high == 58_720_256
    assert lines["nvme", "gradient files"].high == 117_440_512
    assert lines["nvme", "optimizer files"].high == 3 * 117_481_472


@pytest.mark.parametrize(
    ("layers", "dp", "locked"), [(4, 1, 1381.8e6), (4, 2, 945.5e6), (2, 1, 928.7e6), (2, 2, 693.7e6)]
)
def test_locked_memory_is_what_the_runs_locked(layers, dp, locked):
    """VmLck of a rank with 40 parameter buffers of 5e6 elements and 4 optimizer buffers of a sub-group."""
    lines = book(cluster(gpus=dp), workload(toy(layers)), plan("nvme", "nvme", dp_degree=float(dp)))
    swapped = lines["dram", "optimizer swap buffers"].high + lines["dram", "parameter write-back buffer"].high
    parameter_buffers = 40 * 2 * 5_000_192
    assert swapped / dp + parameter_buffers == pytest.approx(locked, abs=0.1e6)


@pytest.mark.parametrize("size", [1e9, 1e8, 1e7])
def test_swap_buffers(size):
    """Optimizer: 4 bytes x count x S; write-back: 2 bytes x dp x S, of each of a node's ranks."""
    ranks, sub_group = 8, size
    work = workload(BIG)
    chosen = plan("nvme", "nvme", dp_degree=8.0, sub_group_params=sub_group, optimizer_buffer_count=12.0)
    lines = book(cluster(gpus=ranks), work, chosen)
    shards = [-(-n // ranks) for n in _tensors_in_order(BIG)]
    largest = _largest_group(shards, size)
    assert lines["dram", "optimizer swap buffers"].high == pytest.approx(ranks * 4 * 12 * largest)
    assert lines["dram", "parameter write-back buffer"].high == pytest.approx(ranks * 2 * ranks * largest)
    assert lines["dram", "optimizer swap buffers"].pinned
    assert lines["dram", "parameter write-back buffer"].pinned
    largest_shard, count = max(shards), settled(cluster(gpus=ranks), work, chosen).param_buffer_count
    assert lines["dram", "parameter swap buffers"].high == ranks * 2 * count * largest_shard


def _tensors_in_order(model):
    block = [n for operator in model.operators if operator.block for n in operator.tensors]
    outside = {o.name: list(o.tensors) for o in model.operators if not o.block}
    return outside["emb"] + model.layer_count * block + outside["ln"] + outside["head"]


def _largest_group(shards, size):
    groups, group = [], 0
    for shard in shards:
        group += shard
        if group >= size:
            groups, group = [*groups, group], 0
    return max([*groups, group])


def moved(machine, work, chosen):
    """Bytes of one step and all ranks, resource to bytes."""
    totals = {}
    chosen = settled(machine, work, chosen)
    for segment in DEEPSPEED.program(Derivation(), machine, work, chosen):
        demands = {id(demand): demand for chain in segment.chains for demand in chain}
        for demand in demands.values():
            amount = segment.repeats * demand.amount * chosen.dp_degree
            totals[demand.resource] = totals.get(demand.resource, 0.0) + amount
    return totals


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize(
    ("layers", "mode", "reads"),
    [
        # 16-bit parameters, three kinds of fp32 state, fp32 gradients
        (2, NONE, (117_440_512, 3 * 117_481_472, 117_440_512)),
        (2, FULL, (88_080_384, 3 * 117_481_472, 117_440_512)),
        (5, FULL, (239_075_328, 3 * 268_525_568, 268_435_456)),
    ],
)
def test_nvme_traffic_is_what_the_runs_moved(layers, mode, reads, dp, steps):
    """Parameters are read in every micro-step, the rest once; each rank moves its own slice."""
    work = workload(toy(layers))
    chosen = plan(
        "nvme", "nvme", activation_checkpointing=mode, dp_degree=float(dp), accumulation_steps=steps
    )
    found = moved(cluster(gpus=dp), work, chosen)
    params, state, gradients = reads
    assert found["nvme.swap_read"] == steps * params + state + gradients
    files = 2 * (gradients // 4)
    assert found["nvme.swap_write"] == state + gradients + files


def test_traffic_per_parameter_is_2f_16_and_18():
    work = workload(BIG)
    found = moved(cluster(), work, plan("nvme", "nvme", activation_checkpointing=NONE))
    params = work.model.params
    fetched = fetches(BIG, int(NONE), False, Policy(0, 1e9, 0, 100_000)).elements / params
    assert found["nvme.swap_read"] / params == pytest.approx(2 * fetched + 16, rel=1e-4)
    assert found["nvme.swap_write"] / params == pytest.approx(18, rel=1e-4)


def test_64_ranks_swap_three_of_six_matrices():
    """19.076 bytes read and 17.384 written per parameter: shards below 1 MiB stay in memory."""
    work = workload(toy(1, hidden=4096, middle=16384, vocabulary=2048), sequence_length=8)
    chosen = plan("nvme", "nvme", activation_checkpointing=NONE, dp_degree=64.0)
    found = moved(cluster(nodes=8, gpus=8), work, chosen)
    assert found["nvme.swap_read"] / work.model.params == pytest.approx(19.076, abs=2e-3)
    assert found["nvme.swap_write"] / work.model.params == pytest.approx(17.384, abs=2e-3)


@pytest.mark.parametrize(
    ("params", "optimizer", "read", "written"),
    [("hbm", "nvme", 16, 16), ("dram", "nvme", 16, 16), ("nvme", "dram", 4, 2), ("nvme", "hbm", 4, 2)],
)
def test_nvme_bytes_of_partial_offload(params, optimizer, read, written):
    """12 + 4 with the optimizer alone; 2F and 2 with the parameters alone (F is 2 without recomputation)."""
    work = workload(BIG)
    found = moved(cluster(), work, plan(params, optimizer, activation_checkpointing=NONE))
    assert found.get("nvme.swap_read", 0.0) / work.model.params == pytest.approx(read, rel=1e-3)
    assert found.get("nvme.swap_write", 0.0) / work.model.params == pytest.approx(written, rel=1e-3)


@pytest.mark.parametrize("steps", [1, 4])
def test_host_link_bytes(steps):
    """Gradients go down and come up in each micro-step, and go down once more in fp32."""
    work, params = workload(BIG), BIG.params
    chosen = plan("dram", "dram", activation_checkpointing=NONE, accumulation_steps=float(steps))
    found = moved(cluster(), work, chosen)
    assert found["dram.write"] / params == pytest.approx(2 * steps + 4, rel=1e-3)
    assert found["dram.read"] / params == pytest.approx(steps * (2 * 2 + 2), rel=1e-3)


def test_gradients_that_cannot_swap_stay_on_the_gpu():
    """As the runs held them: the norms alone at hidden 1024, 64 MB at 1000, all of them on 7 ranks."""

    def held(model, dp):
        lines = book(cluster(gpus=dp), workload(model), plan("nvme", "nvme", dp_degree=float(dp)))
        return lines["hbm", "gradients that cannot swap"].high

    assert held(toy(), 1) == 40_960
    assert held(toy(4, hidden=1000, middle=4000), 1) == 64_072_000
    assert held(toy(), 7) == pytest.approx(4 * toy().params / 7, rel=1e-5)


def test_optimizer_swapping_needs_four_or_twelve_buffers():
    machine, work = cluster(), workload(BIG)
    axis = next(a for a in DEEPSPEED.axes(machine, work) if a.name == "placement")
    swapped = [choice for choice in axis.choices if choice["placement"].optimizer.get("nvme")]
    counts = {settled(machine, work, Plan(dp_degree=1.0, **c)).optimizer_buffer_count for c in swapped}
    assert counts == {4.0, 12.0}


def test_a_line_shows_the_law_that_gave_it_or_none():
    """Stated constants have no law; a range shows the law of its high end."""
    lines = book(cluster(), workload(BIG), plan("dram", "dram"))
    assert all(line.step is None or line.step.value == line.high for line in lines.values())
    assert lines["hbm", "GPU context"].step is None
    assert lines["hbm", "logits and loss"].step.law.name == "logits_bytes"
