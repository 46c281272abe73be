"""`fit` with adapters and frozen parts: flags, files, and what is refused."""

import json

import pytest
from cli.runs import ziplan

FIT = ("fit", "llama-2-7b", "rtx-4090-desktop", "--sequence-length", 512, "--global-batch-size", 4)


def test_flags_ask_for_adapters(capsys, tmp_path):
    flags = ("--lora-rank", 16, "--lora-targets", "q_proj,v_proj")
    done = ziplan(capsys, *FIT, *flags, "--out", tmp_path / "plan")
    assert done.code == 0
    assert "6.75 Gparam, 8.39 Mparam trained" in done.out
    assert 'r=16, target_modules=["q_proj", "v_proj"]' in (tmp_path / "plan" / "launch.sh").read_text()
    every = ziplan(capsys, *FIT, "--lora-rank", 16)
    assert "40 Mparam trained" in every.out


def test_flags_win_over_the_file(capsys, tmp_path):
    path = tmp_path / "model.yaml"
    path.write_text("model: llama-2-7b\ntraining: {sequence_length: 512, trainable: {frozen: [mlp]}}\n")
    said = ziplan(capsys, "fit", path, "rtx-4090-desktop", "--lora-rank", 1, "--lora-targets", "o_proj")
    assert "262 kparam trained" in said.out  # 32 layers of 2 x 4096


def test_a_frozen_model_needs_fewer_gpus_without_offload(capsys):
    def needed(*flags):
        shape, rest = ("llama-3.1-70b", "dgx-a100-80g"), ("--sequence-length", 512, "--json")
        return json.loads(ziplan(capsys, "fit", *shape, *rest, *flags).out)["baseline"]["gpu_count"]

    assert needed() / needed("--lora-rank", 8) == pytest.approx(16 / 2, rel=0.25)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--lora-targets", "q_proj"), "--lora-targets without a rank"),
        (
            ("--lora-rank", 8, "--lora-targets", "wide"),
            "--lora-targets: no linear in this model is called 'wide'",
        ),
        (("--lora-rank", 10**6), "--lora-rank: must be at most 65,536"),
    ],
)
def test_wrong_flags_are_named(capsys, flags, said):
    done = ziplan(capsys, *FIT, *flags)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_leaner_optimizer_needs_fewer_gpus_without_offload(capsys):
    """AdamW keeps 2 + 2 + 4 + 8 bytes per parameter, Lion on the GPU 4 fewer."""

    def needed(kind):
        shape = ("llama-3.1-70b", "dgx-a100-80g", "--sequence-length", 512, "--optimizer", kind)
        return json.loads(ziplan(capsys, "fit", *shape, "--json").out)["baseline"]["gpu_count"]

    assert needed("lion") / needed("adamw") == pytest.approx(12 / 16, rel=0.07)
