"""A model that is not trained, sharded by the module emitted for it: what FSDP2 holds and gathers."""

import json

import pytest

from engine import nursery
from engine.test_fsdp_emitted import SHAPE
from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes import fsdp
from ziplan.workload.load import load_workload

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.mark.parametrize(("home", "offload"), [("hbm", "auto"), ("hbm", "cpu"), ("dram", "auto")])
def test_a_reference_is_held_and_gathered_as_predicted(tmp_path, home, offload):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    entry = f"companions: [{{role: reference, model: ., offload: {offload}}}]"
    text = f"model: .\n{entry}\ntraining: {{sequence_length: 8, precision: bf16}}\n"
    (tmp_path / "model.yaml").write_text(text)
    work, machine = load_workload(str(tmp_path / "model.yaml"), {}), load_cluster("dgx-a100-80g")
    place = {home: 1.0}
    plan = Plan(dp_degree=8.0, placement=Placement(place, place, place))
    plan = fsdp.settle(machine, work, plan)
    predicted = estimate(machine, work, fsdp, plan)
    files = fsdp.emit(machine, work, plan)
    assert plan.activation_checkpointing == Checkpointing.FULL
    assert "RECOMPUTE_LAYERS = False" in files["fsdp_setup_reference.py"]
    (tmp_path / "setup.py").write_text(files["fsdp_setup_reference.py"])
    job = {"setup": str(tmp_path / "setup.py"), "model": SHAPE, "trained": False, "world": 8}
    (counted,) = nursery.run("engine.fsdp_several", [job], tmp_path)
    assert not counted["optimizer"]
    tier = "dram" if "dram" in home or offload == "cpu" else "hbm"
    lines = [each for each in predicted.ledger.lines if each.tier == tier]
    (line,) = (each for each in lines if each.name == "reference: frozen parameters")
    assert counted["held"] == line.high / (8 if tier == "dram" else 1)
    gathers = {id(d): d for s in predicted.segments for c in s.chains for d in c}.values()
    received = sum(d.amount for d in gathers if (d.term, d.resource) == ("reference: gather", "gather"))
    assert counted["gathered"] * 7 / 8 == pytest.approx(received)
