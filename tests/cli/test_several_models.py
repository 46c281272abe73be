"""`fit` and `limits` of a job with several models, from the flag to the files."""

import json

import pytest
from cli.runs import ziplan

JOB = ("llama-3.2-1b", "dgx-a100-40g", "--sequence-length", "512")
OTHERS = ("--companion", "reference=llama-3.2-1b", "--companion", "critic=opt-350m:all")


def test_the_flag_is_heard_and_each_model_gets_its_file(capsys, tmp_path):
    ran = ziplan(capsys, "fit", *JOB, *OTHERS, "--json", "--out", str(tmp_path / "plan"))
    assert ran.code == 0
    document = json.loads(ran.out)
    named = document["problem"]["companions"]
    assert [each["role"] for each in named] == ["reference", "critic"]
    lines = document["memory"]["hbm"]["phases"]["forward"]["lines"]
    assert {"reference: parameters", "critic: optimizer state"} <= {line["name"] for line in lines}
    assert {each["name"] for each in document["assumptions"]} >= {"time of rollouts"}
    written = {path.name for path in (tmp_path / "plan").iterdir()}
    assert written >= {"ds_config.json", "ds_config_reference.json", "ds_config_critic.json"}


def test_limits_take_the_flag_too(capsys):
    assert "+ reference llama-3.2-1b" in ziplan(capsys, "limits", *JOB, *OTHERS).out


@pytest.mark.parametrize("wrong", ["reference", "judge=gpt2", "reference=gpt-2"])
def test_a_wrong_flag_is_a_question_that_cannot_be_answered(capsys, wrong):
    ran = ziplan(capsys, "fit", *JOB, "--companion", wrong)
    assert ran.code == 2
    assert f"--companion '{wrong}'" in ran.err
    assert "Traceback" not in ran.err
