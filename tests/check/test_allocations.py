"""Failed allocations of public threads, read back by the plan that ran. Sizes are arithmetic by hand."""

import json

import pytest
from check.asked import BASE, GONE, OPTIMIZER, ZERO, changed
from cli.runs import ziplan

from ziplan.check.allocations import causes, failed
from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.inputs import Request

GiB, MiB = 2**30, 2**20
STAGE_2 = {f"{ZERO}.stage": 2, OPTIMIZER: {"device": "cpu"}}


def case(folder, model, ranks, changes, **training):
    path = folder / "ds.json"
    path.write_text(json.dumps(changed(BASE, changes)))
    training = {"sequence_length": 1024, "activation_checkpointing": "full", **training}
    settings = (f"gpus_per_node={ranks}",)
    return case_of(path, Asked(Request(model, "dgx-a100-80g", settings=settings, training=training)))


@pytest.mark.parametrize(
    ("text", "amount", "within"),
    [
        ("CUDA out of memory. Tried to allocate 12.94 GiB. GPU 0 has", 12.94 * GiB, 0.005 * GiB),
        ("Tried to allocate 896.00 MiB (GPU 3; 79.35 GiB total capacity", 896 * MiB, 0.005 * MiB),
        ("CUDA out of memory. Tried to allocate 3.14 GB", 3.14 * GiB, 0.005 * GiB),
        (
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 11811160064 bytes.",
            11811160064,
            0.5,
        ),
        ("AssertionError: More elements 524709888 than buffer size 100,000,000", 524709888, 0.5),
    ],
)
def test_sizes_in_messages(text, amount, within):
    found = failed(text)
    assert found is not None
    assert (found.amount, found.within) == (pytest.approx(amount), pytest.approx(within))


@pytest.mark.parametrize("text", ["", "Killed", "RuntimeError: CUDA error", "Tried to allocate memory"])
def test_a_message_without_a_size(text):
    assert failed(text) is None


@pytest.mark.parametrize(
    ("model", "ranks", "text", "name"),
    [
        # https://github.com/hiyouga/LLaMA-Factory/issues/1221: 6,738,415,616 / 8 x 4 B = 3.138 GiB.
        ("llama-2-7b", 8, "Tried to allocate 3.14 GiB", "a rank's share of the parameters"),
        # Twice the vocabulary's matrix in fp32: 32,000 x 4,096 x 4 B = 500 MiB.
        ("llama-2-7b", 8, "Tried to allocate 500.00 MiB", "tensor of lm_head"),
        ("llama-2-7b", 2, "Tried to allocate 12.55 GiB", "all parameters"),
    ],
)
def test_states_and_tensors(tmp_path, model, ranks, text, name):
    found = causes(case(tmp_path, model, ranks, STAGE_2), failed(text))
    assert name in [cause.name for cause in found]


def test_a_line_of_the_ledger_has_its_law_and_its_key(tmp_path):
    made = case(tmp_path, "llama-2-7b", 8, {f"{ZERO}.reduce_bucket_size": 123_456_789})
    (line,) = (line for line in made.estimate.ledger.lines if line.name == "reduce buckets")
    first = causes(made, failed(f"Tried to allocate {line.high / GiB:.2f} GiB"))[0]
    assert (first.name, first.where, first.knob) == ("reduce buckets", "hbm", "reduce_bucket_size")
    assert "123,456,789 param" in first.formula


def test_attention_scores_of_a_public_run(tmp_path):
    """DeepSpeed issue 2899: 56 heads x 2048^2 x 4 B = 896 MiB; here 32 heads: 512 MiB."""
    made = case(tmp_path, "llama-2-7b", 8, STAGE_2, sequence_length=2048, attention="eager")
    assert any("attention scores" in cause.name for cause in causes(made, failed("allocate 512.00 MiB")))


@pytest.mark.parametrize(("who", "first"), [("CUDA out of memory. Tried", "hbm"), ("you tried", "dram")])
def test_what_another_tier_holds_comes_after_what_the_allocators_own_does(tmp_path, who, first):
    """The host's master weights of a rank and its gradients in fp32 are as large as each other's."""
    held = case(tmp_path, "llama-2-7b", 8, {OPTIMIZER: {"device": "cpu"}})
    size = held.workload.model.params / 8 * 4 / GiB
    found = causes(held, failed(f"{who} to allocate {size:.2f} GiB"))
    where = [cause.where for cause in found if cause.where]
    assert "dram" in where
    if first == "hbm":
        known = [cause.where not in ("", "hbm") for cause in found]
        assert known == sorted(known)
    else:
        assert where[0] == "dram"


def test_sizes_are_asked_for_in_blocks(tmp_path):
    """PyTorch rounds a request of 10 MiB or more up to 2 MiB, and prints that."""
    made = case(tmp_path, "llama-2-7b", 7, STAGE_2)
    shard = 4 * -(-32_000 * 4_096 // 7)
    printed = -(-shard // (2 * MiB)) * 2
    found = causes(made, failed(f"Tried to allocate {printed}.00 MiB"))
    assert "a rank's shard of lm_head" in [cause.name for cause in found]
    assert not causes(made, failed(f"Tried to allocate {printed + 1}.00 MiB"))


def test_the_shard_that_no_buffer_holds(tmp_path, capsys):
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(changed(BASE, {})))
    text = "AssertionError: More elements 65667072 than buffer size 50000000"
    asked = ("llama-3.1-8b", "dgx-a100-80g", path, "--sequence-length", "2048", "--checkpointing", "full")
    ran = ziplan(capsys, "explain", "--error", text, *asked)
    assert ran.code == 0
    assert "embed_tokens" in ran.out
    assert "525,336,576 / 8" in ran.out


def test_nothing_of_that_size_says_so(tmp_path, capsys):
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(changed(BASE, STAGE_2)))
    asked = ("llama-3.1-8b", "dgx-a100-80g", path, "--sequence-length", "2048", "--checkpointing", "full")
    ran = ziplan(capsys, "explain", "--error", "Tried to allocate 77.77 GiB", *asked)
    assert ran.code == 0
    assert "nothing in this plan has that size" in ran.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--error", "Killed", "llama-3.1-8b", "dgx-a100-80g", "ds.json", "--sequence-length", "2048"),
        ("--error", "Tried to allocate 1 GiB", "llama-3.1-8b", "dgx-a100-80g"),
        (
            "--error",
            "Tried to allocate 1 GiB",
            "llama-3.1-8b",
            "dgx-a100-80g",
            "no-such.json",
            "--sequence-length",
            "8",
        ),
        ("article", "laws"),
    ],
)
def test_what_cannot_be_explained_is_told(capsys, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(json.dumps(changed(BASE, {"bf16": GONE})))
    ran = ziplan(capsys, "explain", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "bug in ziplan" not in ran.err
