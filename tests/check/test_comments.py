"""Findings that a comment on the key's line lives with."""

import json

import pytest
from cli.runs import ziplan

ASKED = ("llama-3.1-8b", "dgx-a100-80g", "--sequence-length", "2048", "--checkpointing", "full")
BUCKET = '    "allgather_bucket_size": 200000000,'
HJSON = """\
{{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {{"enabled": true}},
  "wall_clock_breakdown": true{timers}
  "zero_optimization": {{
{bucket}
    "stage": 3
  }}
}}
"""


def judged(folder, capsys, name="ds_config.json", timers=",", bucket=BUCKET, **more):
    path = folder / name
    path.write_text(HJSON.format(timers=timers, bucket=bucket))
    ran = ziplan(capsys, "check", str(path), *ASKED, "--json", "--exit-zero", *more.get("options", ()))
    return json.loads(ran.out) if ran.code == 0 else ran


def codes(found):
    return {each["code"] for each in found}


def test_the_findings_without_a_comment(tmp_path, capsys):
    found = codes(judged(tmp_path, capsys)["findings"])
    assert {"ZP302", "ZP218"} <= found


@pytest.mark.parametrize("mark", ["#", "//", "#  "])
def test_a_comment_on_the_line_of_the_key(tmp_path, capsys, mark):
    said = judged(tmp_path, capsys, bucket=f"{BUCKET} {mark}ziplan: ignore ZP302 kept for stage 2")
    assert "ZP302" not in codes(said["findings"])
    (found,) = said["suppressed"]
    assert (found["code"], found["line"], found["reason"]) == ("ZP302", 6, "kept for stage 2")
    assert not said["unused_suppressions"]


def test_a_comment_between_marks(tmp_path, capsys):
    """Hjson has these too, and the key may come behind one."""
    said = judged(tmp_path, capsys, bucket=f"/* ziplan: ignore ZP302 kept for stage 2 */ {BUCKET}")
    (found,) = said["suppressed"]
    assert (found["code"], found["line"], found["reason"]) == ("ZP302", 6, "kept for stage 2")


def test_of_another_line_it_says_nothing_and_is_told_as_unused(tmp_path, capsys):
    said = judged(tmp_path, capsys, timers=", # ziplan: ignore ZP302")
    assert "ZP302" in codes(said["findings"])
    assert not said["suppressed"]
    assert codes(said["unused_suppressions"]) == {"ZP302"}


def test_several_rules_at_once(tmp_path, capsys):
    said = judged(tmp_path, capsys, timers=", # ziplan: ignore ZP218, ZP302 measured")
    assert codes(said["suppressed"]) == {"ZP218"}


@pytest.mark.parametrize(("text", "said"), [("ignore ZP999", "no rule is called"), ("ignore", "no rule")])
def test_a_comment_that_names_no_rule_is_no_answer(tmp_path, capsys, text, said):
    ran = judged(tmp_path, capsys, bucket=f"{BUCKET} # ziplan: {text}")
    assert ran.code == 2
    assert said in ran.err
    assert "ds_config.json:6:" in ran.err


def test_text_in_a_value_is_no_comment(tmp_path, capsys):
    path = '    "offload_param": {"device": "cpu", "nvme_path": "/a # ziplan: ignore ZP302"},'
    said = judged(tmp_path, capsys, bucket=path)
    assert not said["suppressed"]
    assert "ZP302" in codes(said["findings"])


def test_in_yaml(tmp_path, capsys):
    path = tmp_path / "accelerate.yaml"
    path.write_text(
        "distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n"
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
        "  fsdp_use_orig_params: true  # ziplan: ignore ZP302\n"
    )
    ran = ziplan(capsys, "check", str(path), *ASKED, "--micro-batch-size", "1")
    assert "1 suppressed" in ran.out
    assert "ZP302" in ran.out
    assert "in line 6" in ran.out
