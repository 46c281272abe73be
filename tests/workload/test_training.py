"""What training changes and what optimizers keep, also where no runtime plans with it yet."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from workload.hugging_face import hf_model
from workload.models import built, shipped
from workload.small import SMALL

from ziplan.workload.load import load_workload
from ziplan.workload.model import Operator
from ziplan.workload.optimizers import OPTIMIZER_STATES, state_bytes
from ziplan.workload.training import Optimizer

FILE = """
model: gpt2
training:
  sequence_length: 256
  optimizer: {kind: adamw, learning_rate: 3e-4, weight_decay: 0.1}
"""


@pytest.mark.parametrize(
    ("given", "rate", "decay"),
    [
        ("adamw", 3e-4, 0.1),
        ({"kind": "adamw"}, 3e-4, 0.1),
        ({"learning_rate": 1e-3}, 1e-3, 0.1),
        ({"weight_decay": 0.0}, 3e-4, 0.0),
        (None, 3e-4, 0.1),
    ],
)
def test_a_flag_changes_of_the_optimizer_what_it_names(tmp_path, given, rate, decay):
    path = tmp_path / "model.yaml"
    path.write_text(FILE)
    optimizer = load_workload(str(path), {"optimizer": given}, ()).training.optimizer
    assert (optimizer.kind, optimizer.learning_rate, optimizer.weight_decay) == ("adamw", rate, decay)


def test_full_training_changes_every_parameter():
    workload = load_workload("llama-3.2-1b", {"sequence_length": 64}, ())
    assert workload.trainable_params == workload.model.params


def test_an_optimizer_that_is_not_known_is_refused():
    with pytest.raises(ValidationError, match="'adamw', 'adamw_8bit', 'adafactor', 'lion' or 'sgd'"):
        Optimizer(kind="adam")


def test_states_of_one_parameter():
    model = shipped("llama-3.1-8b")
    assert state_bytes(model, "adamw") == 8 * model.params
    assert state_bytes(model, "lion") == 4 * model.params
    assert state_bytes(model, "sgd") == 0
    assert 2 < state_bytes(model, "adamw_8bit") / model.params < 2.04
    assert state_bytes(model, "adafactor") / model.params < 0.01


def test_small_tensors_keep_their_moments_in_fp32():
    assert OPTIMIZER_STATES["adamw_8bit"].of_operator(Operator("n", "norm", 64, 64)) == 8 * 64


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral", "gpt_oss", "deepseek_v3", "t5", "bert"])
def test_adafactor_keeps_what_it_really_keeps(family):
    torch = pytest.importorskip("torch")
    model = hf_model(SMALL[family], "cpu").float()
    optimizer = torch.optim.Adafactor(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    kept = sum(
        value.numel() * value.element_size()
        for state in optimizer.state.values()
        for key, value in state.items()
        if key != "step"
    )
    assert state_bytes(built(SMALL[family]), "adafactor") == kept
