"""Layers that the emitted FSDP files find in a model are those that are planned with, in every family."""

import ast

import pytest
from workload.hugging_face import hf_model
from workload.models import built
from workload.small import SMALL

from ziplan.runtimes.fsdp.config import LAYERS
from ziplan.runtimes.fsdp.snippet import TEMPLATE
from ziplan.workload.families import FAMILIES


def found(model):
    """What `layers` of the emitted script finds."""
    torch = pytest.importorskip("torch")
    tree = ast.parse(TEMPLATE.replace("@", "_"))
    (code,) = (part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name == "layers")
    space = {"torch": torch}
    exec(compile(ast.Module([code], []), "fsdp_setup.py", "exec"), space)
    return space["layers"](model)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_script_groups_layers_and_nothing_else(family):
    planned, real = built(SMALL[family]), hf_model(SMALL[family])
    layers = found(real)
    assert len(layers) == planned.layer_count
    weights = {id(weight): weight.numel() for layer in layers for weight in layer.parameters()}
    assert sum(weights.values()) == planned.block_params


@pytest.mark.parametrize("family", FAMILIES)
def test_accelerate_wraps_layers_and_nothing_else(family):
    """By `_no_split_modules`, or by the names that its config gives in their place."""
    real = hf_model(SMALL[family])
    names = set(LAYERS[family].split(",")) if family in LAYERS else set(real._no_split_modules)
    wrapped = [module for module in real.modules() if type(module).__name__ in names]
    assert {id(module) for module in wrapped} == {id(layer) for layer in found(real)}
