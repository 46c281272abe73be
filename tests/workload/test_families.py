"""Every tensor of every family against the Hugging Face model of the same config."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload.hugging_face import TWO_STACKS, hf_model, hf_parameters
from workload.models import built, shipped
from workload.small import SMALL, configs

from ziplan.workload.families import FAMILIES
from ziplan.workload.model import visited
from ziplan.workload.shapes import list_shapes, shape_config

LAYER = re.compile(r"\.(layers?|h|blocks?)\.\d+\.")
"""What the name of a parameter in a layer has."""

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "llama-3.3-70b": 70_553_706_496,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "tinyllama-1.1b": 1_100_048_384,
    "smollm2-1.7b": 1_711_376_384,
    "smollm3-3b": 3_075_098_624,
    "yi-34b": 34_388_917_248,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mistral-large-123b": 122_610_069_504,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b-text": 3_880_263_168,
    "gemma-3-12b-text": 11_766_034_176,
    "gemma-3-27b-text": 27_009_346_304,
    "phi-2": 2_779_683_840,
    "phi-3-mini": 3_821_079_552,
    "phi-3-medium": 13_960_238_080,
    "phi-4": 14_659_507_200,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_404_352,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "llama-4-scout-text": 107_769_861_120,
    "llama-4-maverick-text": 400_711_848_960,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "opt-1.3b": 1_315_758_080,
    "opt-2.7b": 2_651_596_800,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
    "opt-30b": 29_974_540_288,
    "bloom-560m": 559_214_592,
    "bloom-1b1": 1_065_314_304,
    "bloom-1b7": 1_722_408_960,
    "bloom-3b": 3_002_557_440,
    "bloom-7b1": 7_069_016_064,
    "bloom-176b": 176_247_271_424,
    "falcon-7b": 6_921_720_704,
    "falcon-40b": 41_303_293_952,
    "falcon-180b": 178_557_088_768,
    "gpt-neox-20b": 20_554_567_680,
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016,
    "pythia-1b": 1_011_781_632,
    "pythia-1.4b": 1_414_647_808,
    "pythia-2.8b": 2_775_208_960,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
    "gpt-j-6b": 6_050_882_784,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "starcoder2-15b": 15_957_889_024,
    "olmo-7b": 6_888_095_744,
    "olmo-2-1b": 1_484_916_736,
    "olmo-2-7b": 7_298_617_344,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-32b": 32_234_279_936,
    "olmoe-1b-7b": 6_919_161_856,
    "command-r": 34_980_831_232,
    "command-r-plus": 103_810_674_688,
    "command-r7b": 8_028_033_024,
    "granite-3.1-8b": 8_170_848_256,
    "stablelm-3b": 2_795_443_200,
    "stablelm-2-1.6b": 1_644_515_328,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "flan-t5-xl": 2_849_757_184,
    "flan-t5-xxl": 11_135_332_352,
    "bart-base": 139_420_416,
    "bart-large": 406_291_456,
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "roberta-base": 124_697_433,
    "roberta-large": 355_412_057,
    "m2m100-418m": 483_905_536,
    "nllb-200-600m": 615_073_792,
    "nllb-200-1.3b": 1_370_638_336,
    "nllb-200-3.3b": 3_344_863_232,
    "mbart-large-50": 610_879_488,
    "mbart-large-cc25": 610_851_840,
    "blenderbot-400m": 364_802_560,
    "blenderbot-3b": 2_696_268_800,
    "mpt-7b": 6_649_286_656,
    "mpt-30b": 29_957_200_896,
    "gpt-neo-125m": 125_198_592,
    "gpt-neo-1.3b": 1_315_575_808,
    "gpt-neo-2.7b": 2_651_307_520,
    "starcoder-15b": 15_517_456_384,
    "starcoderbase-1b": 1_137_207_296,
    "xlm-roberta-base": 278_295_186,
    "xlm-roberta-large": 560_142_482,
    "mt5-small": 300_176_768,
    "mt5-base": 582_401_280,
    "mt5-large": 1_229_581_312,
    "mt5-xl": 3_742_619_648,
    "mt5-xxl": 12_921_057_280,
    "seed-oss-36b": 36_151_104_512,
    "ernie-4.5-0.3b": 360_748_032,
    "glm-4-9b": 9_399_951_360,
    "glm-4-9b-0414": 9_400_279_040,
    "glm-4-32b-0414": 32_566_081_536,
    "olmo-3-7b": 7_298_011_136,
    "olmo-3-32b": 32_233_522_176,
    "vit-b-16": 86_567_656,
    "vit-l-16": 304_326_632,
    "vit-h-14": 632_045_800,
}
"""Parameters as the checkpoints' own metadata count them, of what the shape is.

Where a checkpoint holds more, that is left out: the vision part of Gemma 3 (416,866,032, and a
projection of 1152 x (d_model + 1)) and of Llama 4 (871,932,416 in both sizes), the second copy of
a tied head, DeepSeek-V3's bias of the router, which is no parameter to transformers.
"""


ACTIVE = {
    "mixtral-8x7b": 12_879_925_248,
    "deepseek-v2": 21_375_800_320,
    "deepseek-v3": 37_552_282_624,
    "qwen3-30b-a3b": 3_353_032_704,
    "qwen3-235b-a22b": 22_190_763_520,
    "llama-4-scout-text": 17_172_894_720,
    "olmoe-1b-7b": 1_282_017_280,
}
"""Active parameters, embeddings included; published as 12.9, 21, 37, 3.3, 22, 17 and 1.3 B."""

MULTIPLIED = {"gpt-oss-20b": 3.61e9, "gpt-oss-120b": 5.13e9}
"""Active parameters as stated by who leaves the table of tokens out (arXiv:2508.10925, Table 1)."""


def assert_same_tensors(model, config):
    theirs = hf_parameters(config)
    ours: Counter[int] = Counter()
    for elements, count, _ in model.tensors:
        ours[elements] += count
    assert ours == Counter(theirs.values())
    assert model.params == sum(theirs.values())
    in_layers = sum(size for name, size in theirs.items() if LAYER.search(name))
    assert model.block_params == in_layers
    assert model.layer_params == in_layers // model.layer_count
    assert visited(model.sections) == {operator.name: operator.count for operator in model.operators}
    assert model.params - model.block_params == sum(
        operator.params
        for section in model.sections
        if not section.block
        for layer in section.layers
        for operator in layer
    )


@pytest.mark.parametrize("name", list_shapes())
@pytest.mark.slow
def test_shipped_shapes_have_the_tensors_of_the_real_model(name):
    assert_same_tensors(shipped(name), shape_config(name))


@pytest.mark.parametrize(("name", "params"), PUBLISHED.items())
def test_shipped_shapes_have_the_published_number_of_parameters(name, params):
    assert shipped(name).params == params


@pytest.mark.parametrize(("name", "active"), ACTIVE.items())
def test_active_parameters_are_the_published_ones(name, active):
    model = shipped(name)
    assert model.active_params == active
    assert model.matmul_params < model.active_params < model.params


@pytest.mark.parametrize(("name", "multiplied"), MULTIPLIED.items())
def test_multiplied_parameters_are_the_published_ones(name, multiplied):
    assert shipped(name).matmul_params == pytest.approx(multiplied, rel=2e-3)


def test_all_parameters_of_a_dense_model_are_active():
    for name in ("llama-3.1-8b", "t5-small", "bert-base", "vit-b-16"):
        assert shipped(name).active_params == shipped(name).params


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_config_has_the_tensors_of_the_real_model(family, data):
    config = data.draw(configs(family))
    assert_same_tensors(built(config), config)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_operators_come_in_the_order_of_forward(family):
    """Forward visits the modules that own parameters as `sections` say, layer by layer."""
    torch = pytest.importorskip("torch")
    config = SMALL[family]
    model = hf_model(config, "cpu")
    model.config._experts_implementation = "eager"
    called: list[str] = []
    for name, module in model.named_modules():
        inner = {id(tensor) for child in module.children() for tensor in child.parameters()}
        own = [tensor for tensor in module.parameters(recurse=False) if id(tensor) not in inner]
        if own or name.endswith("embed_tokens"):
            module.register_forward_pre_hook(lambda *_, name=name: called.append(short(family, name)))
    token_ids = torch.zeros(1, 4, dtype=torch.long)
    inputs = {"input_ids": token_ids}
    if family == "vit":
        inputs = {"pixel_values": torch.zeros(1, 3, 32, 32)}
    if family in TWO_STACKS:
        inputs["decoder_input_ids"] = token_ids
    with torch.no_grad():
        model(**inputs)
    ours = built(config)
    visits = [
        o.name
        for section in ours.sections
        for _ in range(section.repeat)
        for layer in section.layers
        for o in layer
    ]
    assert visits == called
    assert [operator.name for operator in ours.operators] == list(dict.fromkeys(called))


def short(family, name):
    """A module's name as operators have it: without what its family's modules have around them."""
    name = re.sub(r"^(model|transformer|gpt_neox|bert|roberta|vit)\.", "", name)
    if family == "opt":
        return re.sub(r"^decoder\.layers\.\d+\.", "", name)
    if re.match(r"(encoder|decoder)\.block", name):
        name = re.sub(r"block\.\d+\.", "", name)
        return re.sub(r"layer\.\d\.(?=\w*(Attention|Dense))", "", name)
    if re.match(r"(encoder|decoder)\.layers", name):
        return re.sub(r"layers\.\d+\.", "", name)
    return re.sub(r"^(encoder\.)?(layers?|h|blocks)\.\d+\.", "", name)


def test_a_tied_head_computes_but_owns_nothing():
    tied = shipped("gpt2").operator("lm_head")
    assert (tied.params, tied.matmul_params, tied.shared_with) == (0, 768 * 50257, "wte")


def test_every_family_has_a_shipped_shape():
    assert {shipped(name).family for name in list_shapes()} == set(FAMILIES)


def test_layers_that_differ_are_told_in_order():
    """DeepSeek-V3's dense layers come first, Llama 4 Maverick's by turns, T5's stacks one after the other."""

    def told(name):
        return [(len(section.layers), section.repeat) for section in shipped(name).sections if section.block]

    assert told("deepseek-v3") == [(1, 3), (1, 58)]
    assert told("llama-4-maverick-text") == [(2, 24)]
    assert told("t5-small") == [(1, 1), (1, 5), (1, 1), (1, 5)]
    assert told("llama-3.1-8b") == [(1, 32)]


def test_a_layer_may_be_larger_than_the_mean():
    model = shipped("deepseek-v3")
    assert model.largest_layer_params == 11_507_286_016 > model.layer_params
    alike = shipped("llama-3.1-8b")
    assert alike.largest_layer_params == alike.layer_params


@pytest.mark.parametrize(
    ("name", "attentions", "causal", "width"),
    [
        ("llama-3.1-8b", 32, 1.0, 4096),
        ("t5-small", 18, 1 / 3, 512),
        ("bert-base", 12, 0.0, 768),
        ("deepseek-v3", 61, 1.0, 128 * 160),
    ],
)
def test_attentions_are_counted_with_what_they_see(name, attentions, causal, width):
    model = shipped(name)
    assert (model.attentions, model.causal_share, model.attention_width) == (attentions, causal, width)


def test_only_the_token_of_the_class_gets_logits():
    model = shipped("vit-b-16")
    assert model.logits_share == 1 / 197
    assert model.operator("classifier").matmul_params == round(768 * 1000 / 197)
