"""The launch script of Megatron-LM: it makes the model that was planned, or it is not written."""

from dataclasses import replace

import pytest
from runtimes.toy import cluster, plan

from ziplan.errors import CannotEmit
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.megatron.gpt import gpt_of
from ziplan.workload.kept import kept_bytes
from ziplan.workload.load import load_model
from ziplan.workload.training import Training, Workload

MEGATRON = RUNTIMES["megatron"]


def script_of(name, machine=None, training=(), **degrees):
    """What is written for one of the shipped shapes, an argument a line."""
    model, settings = load_model(name), Training(sequence_length=512, **dict(training))
    work = Workload(model, settings, "bf16", kept_bytes(model, "flash", "bf16"))
    chosen = plan(zero_stage=1.0, **{"dp_degree": 8.0, **degrees})
    text = MEGATRON.emit(machine or cluster(gpus=8), work, chosen)["launch.sh"]
    return {line.removesuffix(" \\").strip() for line in text.splitlines()}


@pytest.mark.parametrize(
    ("name", "arguments", "absent"),
    [
        (
            "llama-3.1-8b",
            (
                "--ffn-hidden-size 14336",
                "--kv-channels 128",
                "--swiglu",
                "--position-embedding-type rope",
                "--normalization RMSNorm",
                "--disable-bias-linear",
                "--untie-embeddings-and-output-weights",
            ),
            ("--add-qkv-bias", "--qk-layernorm"),
        ),
        ("qwen2.5-0.5b", ("--add-qkv-bias", "--swiglu"), ("--untie-embeddings-and-output-weights",)),
        ("qwen3-0.6b", ("--kv-channels 128", "--qk-layernorm"), ("--add-qkv-bias",)),
        (
            "starcoderbase-1b",
            ("--num-query-groups 1", "--position-embedding-type learned_absolute"),
            ("--swiglu", "--disable-bias-linear", "--normalization RMSNorm"),
        ),
        ("gpt2", ("--ffn-hidden-size 3072", "--max-position-embeddings 1024"), ("--group-query-attention",)),
    ],
)
def test_the_script_makes_the_model_that_was_planned(name, arguments, absent):
    script = script_of(name)
    assert set(arguments) <= script
    assert not set(absent) & script


@pytest.mark.parametrize(
    "name", ["gpt2-xl", "llama-2-70b", "qwen2.5-3b", "qwen3-8b", "phi-4", "starcoder-15b"]
)
def test_the_arguments_make_as_many_parameters(name):
    model = load_model(name)
    assert gpt_of(model).params == model.params
    assert gpt_of(model)._replace(middle=4 * model.d_model + 8).params != model.params


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("flan-t5-xl", "has an encoder"),
        ("bert-large", "has an encoder"),
        ("vit-b-16", "has an encoder"),
        ("gpt-neox-20b", "beside each other"),
        ("mpt-7b", "ALiBi"),
        ("gemma-2-2b", "2,614,341,888 parameters"),
        ("gemma-2b", "a gated gelu"),
        ("opt-1.3b", "asks for relu"),
    ],
)
def test_no_script_is_written_for_what_is_no_gpt(name, why):
    with pytest.raises(CannotEmit, match=f"another model: .*{why}"):
        script_of(name)


ASKED = {
    "--attention-backend flash": {},
    "--attention-backend unfused": {"attention": "eager"},
    "--attention-softmax-in-fp32": {"attention": "eager", "softmax": "fp32"},
    "--cross-entropy-loss-fusion": {"loss": "fused"},
    "--attention-dropout 0 --hidden-dropout 0": {"dropout": False},
    "--no-bias-swiglu-fusion": {"kernels": "eager"},
    "--no-rope-fusion": {"kernels": "eager"},
}
"""Arguments, each with the training that has it asked for and that without which it is not."""


@pytest.mark.parametrize("argument", ASKED)
def test_a_script_asks_for_the_kernels_that_were_predicted_with(argument):
    assert argument in script_of("llama-3.1-8b", training=ASKED[argument])
    other = {"attention": "eager"} if argument == "--attention-backend flash" else {}
    assert argument not in script_of("llama-3.1-8b", training=other)


def test_what_no_argument_asks_for_is_said():
    said = script_of("llama-3.1-8b", training={"kernels": "eager", "loss": "upcast"})
    assert "# Predicted with eager kernels; norms stay fused, which no argument turns off." in said
    assert any("fp32 copy of the logits" in line for line in said)
    assert not any("Predicted with" in line for line in script_of("llama-3.1-8b"))


def test_a_script_starts_the_ranks_of_the_plan():
    """Eight ranks of a cluster of 32 GPUs are one node's: 32 processes would be four replicas."""
    assert "torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py" in script_of("gpt2", cluster(4, 8))


def test_heads_of_keys_are_divided_too():
    model = load_model("qwen2.5-0.5b")
    work = Workload(model, Training(sequence_length=512), "bf16", kept_bytes(model, "flash", "bf16"))
    narrow = replace(work, model=replace(model, attention_heads=16))
    assert MEGATRON.refusals(cluster(gpus=8), narrow, plan(zero_stage=0.0, tp_degree=4.0)) == [
        "tp_degree 4 does not divide the 2 heads of keys and values, which Megatron-LM asks for"
    ]
