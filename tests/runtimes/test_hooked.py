"""Modules that stage 3's hooks reach, with parameters and without, against transformers' models."""

import pytest
from workload.hugging_face import hf_config, hf_kind
from workload.models import built, shipped
from workload.small import SMALL

from ziplan.plan import Checkpointing
from ziplan.runtimes.deepspeed.gaps import around_layers, in_layer
from ziplan.runtimes.deepspeed.visits import visits
from ziplan.workload.families import FAMILIES
from ziplan.workload.shapes import list_shapes

KINDS = {"none": Checkpointing.NONE, "reentrant": Checkpointing.FULL, "non_reentrant": Checkpointing.FULL}


def noted(torch, value, note):
    """The same, whose gradient calls `note` when it is there."""

    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(context, tensor):
            return tensor.detach()

        @staticmethod
        def backward(context, gradient):
            note()
            return gradient

    if isinstance(value, torch.Tensor):
        return Noted.apply(value) if value.requires_grad else value
    if isinstance(value, tuple | list):
        return type(value)(noted(torch, each, note) for each in value)
    if isinstance(value, dict):
        for key in tuple(value):
            value[key] = noted(torch, value[key], note)
    return value


def reached(config, kind):
    """Names of modules as hooks meet them: before a module's forward, and when its output has a gradient."""
    torch = pytest.importorskip("torch")
    model = hf_kind(config).from_config(hf_config(config)).train()
    model.tie_weights()
    model.config.use_cache = False
    if kind != "none":
        how = {"use_reentrant": kind == "reentrant"}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
    names = []
    for name, module in model.named_modules():
        around = any(True for _ in module.children())
        ahead, back = ((lambda each=(name, way, around): names.append(each)) for way in ("F", "B"))
        module.register_forward_pre_hook(lambda *_, note=ahead: note())
        module.register_forward_hook(lambda _, __, out, note=back: noted(torch, out, note))
    model(**_inputs(torch, config)).loss.backward()
    # One around others that has several outputs is reached for each; the tables have it once.
    once = [each for place, each in enumerate(names) if not (place and each == names[place - 1] and each[2])]
    return [name for name, *_ in once]


def _inputs(torch, config):
    if config["model_type"] == "vit":
        size = config["image_size"]
        return {"pixel_values": torch.zeros(1, 3, size, size), "labels": torch.zeros(1, dtype=torch.long)}
    tokens = torch.randint(2, config["vocab_size"], (1, 4))
    return {"input_ids": tokens, "labels": tokens}


def told(model, kind):
    """The same of the played visits: how many others come before each operator, and its name's end."""
    order = visits(model, [s.repeat for s in model.sections], int(KINDS[kind]), kind == "reentrant")
    names = [visit.parts[0][0].name.rpartition(".")[2] for visit in order]
    return [(visit.others + bool(visit.fetched), name) for visit, name in zip(order, names, strict=True)]


def counted(names, told):
    """What was reached, counted as the played visits are, as far as these go."""
    found, others, expected = [], 0, iter(told)
    following = next(expected, None)
    for name in names:
        if following is not None and name.rpartition(".")[2] == following[1]:
            found.append((others, following[1]))
            others, following = 0, next(expected, None)
        else:
            others += 1
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_visits_are_what_hooks_of_a_model_meet(family, kind):
    config = {**SMALL[family]}
    if config.get("model_type") in ("bert", "roberta", "xlm-roberta"):
        config["max_position_embeddings"] = 64
    expected = told(built(config), kind)
    assert counted(reached(config, kind), expected) == expected


@pytest.mark.parametrize("name", list_shapes())
def test_every_module_of_a_shape_is_found_in_the_tables(name):
    model = shipped(name)
    outside = tuple(o.name for s in model.sections if not s.block for layer in s.layers for o in layer)
    assert around_layers(model.family, outside, (True,) * len(outside), False)[1]
    for section in model.sections:
        for layer in section.layers if section.block else ():
            names = tuple(operator.name for operator in layer)
            assert any(in_layer(model.family, names, (True,) * len(names), False, None).before)
