"""FSDP2's bytes and files, with arithmetic of their own; the engine tests hold them against torch."""

from dataclasses import replace

import pytest
from runtimes.toy import cluster, plan, toy, workload

from ziplan.errors import CannotEmit
from ziplan.estimate import estimate
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.fsdp.facts import Facts
from ziplan.runtimes.fsdp.groups import groups
from ziplan.runtimes.terms import HOST_NORM
from ziplan.workload.model import Operator

FSDP = RUNTIMES["fsdp"]
BIG = toy(8, hidden=8192, middle=32768)


def settled(home, machine=None, work=None, **fields):
    return FSDP.settle(machine or cluster(), work or workload(), plan(home, home, **fields))


def lines(home, gpus, work, **fields):
    machine = cluster(gpus=gpus)
    chosen = settled(home, machine, work, dp_degree=float(gpus), **fields)
    return {(line.tier, line.name): line for line in FSDP.ledger(Derivation(), machine, work, chosen).lines}


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize("home", ["hbm", "dram"])
def test_states_take_16_bytes_per_parameter(home, gpus):
    """4 + 4 + 8, in any precision; on the host parameters and gradients are pinned."""
    work = workload(BIG)
    found = lines(home, gpus, work)
    states = [found[home, name] for name in ("parameters", "gradients", "optimizer state")]
    here = gpus if home == "hbm" else 1
    assert here * sum(line.high for line in states) == pytest.approx(16 * work.model.params)
    pinned = sum(line.high for line in found.values() if line.pinned and "earlier" not in line.name)
    assert pinned == pytest.approx(8 * work.model.params if home == "dram" else 0)


def test_a_gpu_holds_the_root_and_two_layers_gathered():
    work = workload(BIG)
    found = lines("dram", 8, work)
    layer = 4 * 8192**2 + 2 * 8192 * 32768 + 4 * 8192
    root = 2 * 2048 * 8192 + 2 * 8192
    assert found["hbm", "gathered parameters"].high == 2 * (root + layer)
    assert found["hbm", "gather buffers"].low == 2 * layer
    assert found["hbm", "gather buffers"].high == 4 * layer
    assert found["hbm", "gradients before they are reduced"].high == 2 * (root + 2 * layer)
    assert lines("dram", 1, work)["hbm", "gather buffers"].high == 0


def test_pads_the_first_dimension_of_every_tensor():
    """Over 64 ranks a width of 1024 pads nothing, 1000 rows become 1024, and 8 experts 64."""
    assert groups(toy(), 64.0).all == toy().params
    assert groups(toy(vocabulary=1000), 64.0).root == groups(toy(vocabulary=1024), 64.0).root
    experts = Operator("experts", "experts", 16, 32, weights=((16, 32),), experts=8)
    model = replace(toy(1), operators=(experts, *toy(1).operators))
    assert groups(model, 64.0).layers - groups(toy(1), 64.0).layers == 64 * 16 * 32


def demanded(home, term, **fields):
    machine, work = cluster(gpus=4), workload(BIG)
    answer = estimate(machine, work, FSDP, settled(home, machine, work, dp_degree=4.0, **fields))
    demands = {id(d): d for segment in answer.segments for chain in segment.chains for d in chain}
    return sum(d.amount for d in demands.values() if d.term == term) / work.model.params


@pytest.mark.parametrize("steps", [1.0, 4.0])
def test_what_moves_in_a_micro_step(steps):
    """Layers are gathered twice and the root once; shards climb in fp32, gradients leave in fp32."""
    root = groups(BIG, 4.0).root / BIG.params
    fields = {"accumulation_steps": steps}
    assert demanded("hbm", "gather", **fields) == pytest.approx(2 * (2 - root) * 3 / 4)
    assert demanded("hbm", "gradient reduce", **fields) == pytest.approx(2 * 3 / 4)
    assert demanded("hbm", "parameter copy", **fields) == 0
    assert demanded("dram", "parameter copy", **fields) == pytest.approx(4 * (2 - root) / 4)
    assert demanded("dram", "gradient copy to host", **fields) == pytest.approx(4 / 4)
    added = demanded("dram", "gradient accumulation", **fields)
    assert added == pytest.approx((steps - 1) / steps * 12 / 28)
    # Gradients are read and written once more, where they are clipped.
    assert demanded("dram", "CPU optimizer", **fields) == pytest.approx(1 + 8 / 28)
    assert demanded("dram", HOST_NORM, **fields) == pytest.approx(4 / 4)


REFUSED = {
    "zero_stage 3": {"zero_stage": 2.0},
    "degree 1": {"tp_degree": 2.0},
    "prefetch_depth 1": {"prefetch_depth": 2.0},
    "tile_count 1": {"tile_count": 2.0},
    "swap buffers": {"param_buffer_count": 4.0},
    "one tier for all": {"placement": plan("hbm", "dram").placement},
    "no NVMe": {"placement": plan("nvme", "nvme").placement},
    "stay on the GPU": {"placement": replace(plan().placement, checkpoints={"dram": 1.0})},
}


@pytest.mark.parametrize("said", REFUSED)
def test_refuses_what_it_cannot_express(said):
    chosen = replace(settled("hbm"), **REFUSED[said])
    assert any(said in reason for reason in FSDP.refusals(cluster(), workload(), chosen))
    with pytest.raises(CannotEmit, match=said):
        FSDP.emit(cluster(), workload(), chosen)


@pytest.mark.parametrize("home", ["hbm", "dram"])
@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
def test_what_is_emitted_is_whole(home, precision):
    work = workload(precision=precision)
    for nodes in (1, 2):
        chosen = settled(home, work=work, dp_degree=float(nodes))
        files = FSDP.emit(cluster(nodes=nodes), work, chosen)
        compile(files["fsdp_setup.py"], "fsdp_setup.py", "exec")
        assert "@" not in "".join(files.values())
        assert f"OFFLOAD = {home == 'dram'}" in files["fsdp_setup.py"]
        assert f"num_machines: {nodes}" in files["accelerate_config.yaml"]


def test_selective_recomputes_attention_alone_but_not_where_it_is_eager():
    selective = {"activation_checkpointing": float(Checkpointing.SELECTIVE)}
    files = FSDP.emit(cluster(), workload(), settled("hbm", **selective))
    assert "RECOMPUTE_ATTENTION = True" in files["fsdp_setup.py"]
    assert "RECOMPUTE_LAYERS = False" in files["fsdp_setup.py"]
    eager = workload(attention="eager")
    with pytest.raises(CannotEmit, match="eager attention is no function"):
        FSDP.emit(cluster(), eager, settled("hbm", work=eager, **selective))


def test_an_update_of_single_operators_moves_what_pytorch_dispatches():
    """Three times what one kernel moves: 84 bytes a parameter in fp32, 42 in 16 bits."""
    for master, each in (("fp32", 84), ("bf16", 42)):
        settings = {"precision": "bf16", "master_precision": master}
        work = workload(**settings, optimizer={"fused": False})
        fused = workload(**settings)
        facts = [Facts(Derivation(record=False), cluster(), job, plan()) for job in (work, fused)]
        assert [one.update for one in facts] == [each, each / 3]
