"""Models with frozen parts and with adapters: what is trained, what backward reaches, what is kept."""

from __future__ import annotations

import pytest
from workload.autograd import measured_bytes_per_token
from workload.hugging_face import hf_model
from workload.models import built, shipped
from workload.small import SMALL
from workload.test_activations import wider

from ziplan.errors import BadInput
from ziplan.runtimes.shared.train_py import recomputed_attention
from ziplan.workload.adapted import adapted
from ziplan.workload.gradients import backward, reaches
from ziplan.workload.kept import kept_bytes
from ziplan.workload.load import load_workload
from ziplan.workload.training import Adapters, Frozen

EVERY_MATRIX = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def lora(rank, *targets):
    return Adapters(lora_rank=rank, targets=targets)


@pytest.mark.parametrize(
    ("name", "rank", "targets", "params"),
    [
        ("llama-2-7b", 8, ("q_proj", "v_proj"), 4_194_304),
        ("llama-2-7b", 16, ("q_proj", "v_proj"), 8_388_608),
        ("llama-3.1-8b", 16, ("q_proj", "v_proj"), 6_815_744),
        ("gpt2", 8, ("attn.c_attn",), 294_912),
        ("llama-3.1-8b", 16, EVERY_MATRIX, 41_943_040),
        ("llama-3.1-8b", 16, ("all-linear",), 41_943_040),
        # Its router is no linear of PyTorch's, and its experts are stacked: attention alone has adapters.
        ("mixtral-8x7b", 16, ("all-linear",), 13_631_488),
    ],
)
def test_adapters_have_as_many_parameters_as_peft_prints(name, rank, targets, params):
    model = adapted(shipped(name), lora(rank, *targets))
    assert model.trainable_params == params
    assert model.params == shipped(name).params + params


@pytest.mark.parametrize("family", ["llama", "gpt2", "deepseek_v3", "t5", "bart", "qwen3_moe"])
def test_adapters_are_the_modules_that_wrapping_a_real_model_makes(family):
    torch = pytest.importorskip("torch")
    model, targets = hf_model(SMALL[family]), ("q_proj", "v_proj", "c_attn", "q_b_proj", "q", "fc1")
    here = [o.name.rpartition(".")[2] for o in built(SMALL[family]).operators if o.kind == "linear"]
    planned = adapted(built(SMALL[family]), lora(3, *(t for t in targets if t in here)))
    model.requires_grad_(False)
    sizes = []
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in targets:
            out_features, in_features = module.weight.shape
            if family == "gpt2":  # its Conv1D has the transposed weight
                out_features, in_features = in_features, out_features
            sizes += [torch.empty(3, in_features).numel(), torch.empty(out_features, 3).numel()]
    expected = sorted(n for n, count, _ in planned.trainable_tensors for _ in range(count))
    assert sizes
    assert sorted(sizes) == expected


@pytest.mark.parametrize("family", sorted(SMALL))
def test_every_linear_is_what_peft_finds_as_one(family):
    """`all-linear` takes modules that are PyTorch's Linear or transformers' Conv1D (`peft/tuners`)."""
    torch = pytest.importorskip("torch")
    from transformers.pytorch_utils import Conv1D

    found = set()
    for name, module in hf_model(SMALL[family]).named_modules():
        if isinstance(module, torch.nn.Linear | Conv1D):
            found.add(name.rpartition(".")[2])
    here = [o for o in built(SMALL[family]).operators if o.kind == "linear" and o.block]
    assert {o.name.rpartition(".")[2] for o in here if not o.router and not o.shared_with} <= found
    assert not {o.name.rpartition(".")[2] for o in here if o.router} & found


def test_all_linear_says_what_it_leaves_out():
    def notes(trainable):
        return load_workload("mixtral-8x7b", {"sequence_length": 16, "trainable": trainable}, ("bf16",)).notes

    every = notes({"lora_rank": 8, "targets": ["all-linear"]})
    assert every[0].startswith("all-linear: no adapters beside mlp.gate, mlp.experts: ")
    named = notes({"lora_rank": 8, "targets": ["q_proj"]})
    assert not any("all-linear" in note for note in named)


def test_a_rank_is_within_the_width_of_every_target():
    model = shipped("llama-3.1-8b")
    # PEFT takes a rank above the narrower side, as for a gate of one output.
    assert adapted(model, lora(4096, "k_proj")).trainable_params
    said = r"lora_rank 4,097 is above 4,096, the width of self_attn.k_proj \(4,096 x 1,024\)"
    with pytest.raises(ValueError, match=said):
        adapted(model, lora(4097, "k_proj"))
    assert adapted(shipped("qwen1.5-moe-a2.7b"), lora(16, "shared_expert_gate")).trainable_params


def test_adapters_follow_their_linear_in_forward_and_in_sections():
    for family in ("llama", "qwen3_moe"):
        model = adapted(built(SMALL[family]), lora(4, "q_proj"))
        names = [operator.name for operator in model.operators]
        place = names.index("self_attn.q_proj")
        assert names[place + 1 : place + 3] == ["self_attn.q_proj.lora_A", "self_attn.q_proj.lora_B"]
        for section in model.sections:
            for layer in section.layers:
                inside = [operator.name for operator in layer]
                if "self_attn.q_proj" in inside:
                    at = inside.index("self_attn.q_proj")
                    assert inside[at + 1 : at + 3] == names[place + 1 : place + 3]
        assert not model.operator("self_attn.q_proj").trainable
        assert model.operator("self_attn.q_proj.lora_A").out_features == 4


def test_frozen_names_a_module_its_end_or_what_holds_it():
    model = shipped("llama-2-7b")
    layer_norms = 32 * 2 * 4096
    mlp = 32 * 3 * 4096 * 11008
    table = 32000 * 4096
    assert adapted(model, Frozen(frozen=("mlp",))).trainable_params == model.params - mlp
    frozen = Frozen(frozen=("embed_tokens", "input_layernorm", "post_attention_layernorm"))
    assert adapted(model, frozen).trainable_params == model.params - table - layer_norms
    with pytest.raises(ValueError, match=r"nothing in this model is called 'q_pro'; it has embed_tokens, "):
        adapted(model, Frozen(frozen=("q_pro",)))


def test_a_tied_head_is_frozen_with_its_table():
    model = shipped("gpt2")
    frozen = adapted(model, Frozen(frozen=("wte",)))
    assert not frozen.operator("lm_head").trainable
    assert frozen.trainable_params == model.params - 50257 * 768
    # The head alone owns nothing that could be frozen.
    assert adapted(model, Frozen(frozen=("lm_head",))).trainable_params == model.params


@pytest.mark.parametrize(
    ("trainable", "said"),
    [
        (
            {"lora_rank": 8, "targets": ["q_proj", "c_attn"]},
            "no linear in this model is called 'c_attn'; it has",
        ),
        ({"lora_rank": 0, "targets": ["q_proj"]}, "lora_rank: must be at least 1, not 0"),
        ({"lora_rank": 8}, "missing key `targets`"),
        ({"lora_rank": 8, "targets": ["input_layernorm"]}, "no linear in this model is called"),
        ({"frozen": ["embed_tokens", "layers"]}, "nothing in this model is called 'layers'"),
        ({"frozen": ["wide"], "rank": 3}, "unknown key `rank`"),
        ({"frozen": []}, "trainable.frozen"),
        ("adapters", "trainable: expected 'all', not 'adapters'"),
    ],
)
def test_what_cannot_be_trained_is_refused_at_its_place(tmp_path, trainable, said):
    import json

    path = tmp_path / "model.yaml"
    path.write_text(
        f"model: llama-2-7b\ntraining:\n  sequence_length: 64\n  trainable: {json.dumps(trainable)}\n"
    )
    with pytest.raises(BadInput) as refused:
        load_workload(str(path), {}, ())
    assert said in str(refused.value)
    assert all(problem.line == 4 for problem in refused.value.problems)


def test_nothing_left_to_train_is_refused():
    model = shipped("llama-2-7b")
    everything = Frozen(frozen=tuple(operator.name for operator in model.operators))
    with pytest.raises(ValueError, match="nothing is left to train"):
        adapted(model, everything)


def test_backward_of_full_training_multiplies_every_matrix_twice():
    for name in ("llama-2-7b", "gpt2", "mixtral-8x7b"):
        model = shipped(name)
        swept = backward(model)
        assert swept.input_gradients == swept.weight_gradients == model.matmul_params
        assert swept.layers == 1


def test_backward_of_adapters_leaves_the_weights_of_the_base_and_what_lies_below_them():
    """Llama-2-7B, q and v: in the first layer q, k, v and the two A have no gradient to pass on."""
    model = shipped("llama-2-7b")
    trained = adapted(model, lora(16, "q_proj", "v_proj"))
    swept = backward(trained)
    assert swept.weight_gradients == 8_388_608
    below = 3 * 4096 * 4096 + 2 * 16 * 4096
    assert swept.input_gradients == model.matmul_params + 8_388_608 - below
    assert backward(trained, from_embedding=True).input_gradients == model.matmul_params + 8_388_608


def test_a_head_alone_is_trained_without_going_back_through_the_layers():
    model = shipped("llama-2-7b")
    others = tuple(o.name for o in model.operators if o.name not in ("norm", "lm_head"))
    swept = backward(adapted(model, Frozen(frozen=others)))
    assert (swept.layers, swept.input_gradients) == (0, 32000 * 4096)
    assert swept.weight_gradients == 32000 * 4096


def test_the_first_layer_knows_which_modules_read_the_same_tensor():
    model = adapted(shipped("llama-2-7b"), lora(16, "v_proj"))
    (before,), (layer,), _ = (section.layers for section in model.sections)
    _, first, second = reaches([before, layer, layer])
    row = {operator.name: reach for operator, reach in zip(layer, first, strict=True)}
    assert row["self_attn.k_proj"] == row["self_attn.q_proj"] == row["self_attn.v_proj"] == (False, False)
    assert row["self_attn.v_proj.lora_A"] == (True, False)
    assert row["self_attn.v_proj.lora_B"] == row["self_attn.o_proj"] == row["mlp.up_proj"] == (True, True)
    assert all(reach == (True, True) for reach in second)


KEPT = {
    "q and v": lora(6, "q_proj", "v_proj", "c_attn"),
    "every matrix": lora(6, "all-linear"),
    "no MLP": Frozen(frozen=("mlp",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["flash", "eager"])
@pytest.mark.parametrize("trainable", KEPT)
@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3"])
def test_what_autograd_keeps_beside_frozen_weights_lies_in_the_range(
    family, trainable, attention, monkeypatch
):
    """The low end is what fused kernels would keep; eager modules keep more, and at most the high end."""
    config, settings = wider(family), KEPT[trainable]
    if isinstance(settings, Adapters) and settings.named_targets:
        names = [operator.name for operator in built(config).operators]
        present = [t for t in settings.targets if any(name.endswith(f".{t}") for name in names)]
        settings = lora(6, *present)
    model = adapted(built(config), settings)
    kept = kept_bytes(model, attention, "bf16")
    whole = kept_bytes(built(config), attention, "bf16")
    assert kept.none_low - kept.frozen_inputs <= whole.none_low + 7 * 2 * 6
    measured = measured_bytes_per_token(
        config, attention, "bf16", False, monkeypatch, lambda hf: prepared(hf, model, settings)
    )
    scores = 96
    low = kept.none_low - kept.frozen_inputs + kept.attention_scores_low * scores
    high = kept.none_high + kept.attention_scores_high * scores
    assert low - 12 <= measured <= high


def prepared(hf, model, settings):
    """The Hugging Face model, frozen and adapted as the planned one."""
    import torch

    class Adapted(torch.nn.Module):
        def __init__(self, base, inputs, outputs, rank):
            super().__init__()
            self.base = base
            self.a = torch.nn.Linear(inputs, rank, bias=False, dtype=base.weight.dtype)
            self.b = torch.nn.Linear(rank, outputs, bias=False, dtype=base.weight.dtype)

        def forward(self, values):
            return self.base(values) + self.b(self.a(values))

    frozen = [operator.name for operator in model.operators if not operator.trainable]
    for name, parameter in hf.named_parameters():
        if any(f".{part}." in f".{name}" for part in frozen):
            parameter.requires_grad_(False)
    adapters = {o.name.removesuffix(".lora_A"): o for o in model.operators if o.name.endswith(".lora_A")}
    for name, module in list(hf.named_modules()):
        mine = next((o for part, o in adapters.items() if name.endswith(f".{part}")), None)
        if mine is not None:
            outputs = model.operator(mine.name.replace(".lora_A", ".lora_B")).out_features
            parent = hf.get_submodule(name.rpartition(".")[0])
            setattr(
                parent, name.rpartition(".")[2], Adapted(module, mine.in_features, outputs, mine.out_features)
            )
    return hf


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "qwen3", "granite"])
def test_what_is_kept_where_attention_alone_is_recomputed_lies_in_the_range(family, monkeypatch):
    """By the lines that emitted files have for train.py."""
    modeling = pytest.importorskip("transformers.modeling_utils")
    config = wider(family)
    monkeypatch.setattr(modeling.ALL_ATTENTION_FUNCTIONS, "_local_mapping", {})

    def recomputing(model):
        exec("\n".join(recomputed_attention()), {"model": model})
        return model

    kept = kept_bytes(built(config), "flash", "bf16")
    whole = measured_bytes_per_token(config, "flash", "bf16", False, monkeypatch, lambda model: model)
    measured = measured_bytes_per_token(config, "flash", "bf16", False, monkeypatch, recomputing)
    assert kept.selective_low - 12 <= measured <= kept.selective_high
    assert measured < whole
