"""`ziplan simulate` at the terminal: with a plan and without, as text, JSON and a trace; what it refuses."""

import json
import re

import jsonschema
import pytest
from cli.runs import ziplan

from ziplan.report.schemas import DOCUMENTS

RUN = ("llama-3.1-8b", "dgx-a100-80g", "--sequence-length", "4096")


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A plan.yaml of eight billion parameters, offloaded because the cards are small."""
    from ziplan.cli.main import run

    folder = tmp_path_factory.mktemp("plan")
    asked = ("llama-3.1-8b", "rtx-4090-x4", "--sequence-length", "2048", "--global-batch-size", "16")
    assert run(["fit", *asked, "--out", str(folder), "--exit-zero", "-o", str(folder / "fit.txt")]) == 0
    return folder / "plan.yaml"


def with_plan(capsys, planned, *more):
    return ziplan(
        capsys, "simulate", planned, "llama-3.1-8b", "rtx-4090-x4", "--sequence-length", "2048", *more
    )


def test_the_best_plan_is_played_when_none_is_given(capsys):
    ran = ziplan(capsys, "simulate", *RUN)
    assert ran.code == 0
    assert ran.err == ""
    for word in ("one step", "GPU", "micro-step", "optimizer step", "layers 15 to 17", "taken as"):
        assert word in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100
    assert "asked for by a module that lacks it" not in " ".join(ran.out.split())


def test_a_plan_is_played_as_its_file_says(capsys, planned):
    told = json.loads(with_plan(capsys, planned, "--json").out)
    jsonschema.validate(told, DOCUMENTS["simulate"])
    assert told["plan"]["dp_degree"] == 4
    played, estimated = told["simulation"]["makespan_s"], told["estimate"]["step_time_s"]
    assert played == pytest.approx(estimated, rel=0.3)
    assert told["straggler"]["slowdown"] is None
    assert any(note.startswith("straggler.slowdown") for note in told["notes"])
    sums = told["simulation"]
    assert sums["stall_s"] == pytest.approx(sum(sums["stalls_s"].values()))
    assert sums["compute_s"] + sums["stall_s"] == pytest.approx(sums["makespan_s"], rel=1e-6)
    assert all(0 <= share <= 1 + 1e-9 for share in sums["utilisation"].values())


def test_the_same_question_has_the_same_answer(capsys, planned):
    assert with_plan(capsys, planned, "--json").out == with_plan(capsys, planned, "--json").out


def test_one_slow_part_is_told_with_what_it_costs(capsys, planned):
    ran = with_plan(capsys, planned, "--slow", "host=0.5")
    assert "one node with host at 50%" in ran.out
    told = json.loads(with_plan(capsys, planned, "--slow", "host=0.5", "--slow", "gpu=0.9", "--json").out)
    assert told["straggler"]["slow"] == {"host": 0.5, "gpu": 0.9}
    assert told["straggler"]["slowdown"] > 1
    jsonschema.validate(told, DOCUMENTS["simulate"])


def test_the_trace_is_written_beside_the_answer(capsys, planned, tmp_path):
    ran = with_plan(capsys, planned, "--trace", tmp_path / "out.json", "-o", tmp_path / "answer.txt")
    assert (ran.code, ran.out) == (0, "")
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    assert (tmp_path / "answer.txt").read_text().startswith("one step")


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_narrow_terminals_are_enough(capsys, planned, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for line in with_plan(capsys, planned).out.splitlines():
        assert len(line) <= columns, line


def test_the_text_is_plain_ascii(capsys, planned):
    assert with_plan(capsys, planned).out.isascii()


def test_owner_broadcast_is_the_ideal_runtimes(capsys, planned):
    ideal = ziplan(capsys, "simulate", *RUN, "--runtime", "ideal", "--fetch", "owner", "--stop-at-turn")
    assert ideal.code == 0
    assert "read whole by its owner" in " ".join(ideal.out.split())
    ran = with_plan(capsys, planned, "--fetch", "owner")
    assert ran.code == 2
    assert "nothing to choose" in ran.err


def test_an_input_that_is_missing_is_named_and_exits_3(capsys, tmp_path):
    ran = ziplan(
        capsys, "simulate", *RUN, "--precision", "fp32", "--micro-batch-size", "1", "--runtime", "ideal"
    )
    known = ziplan(
        capsys, "fit", *RUN, "--precision", "fp32", "--micro-batch-size", "1", "--runtime", "ideal"
    )
    assert ran.code == known.code == 3
    assert "unknown: needs gpu.peak_flops_per_s.fp32" in " ".join(ran.out.split())
    trace = tmp_path / "out.json"
    told = ziplan(capsys, "simulate", *RUN, "--precision", "fp32", "--json", "--trace", trace)
    assert told.code == 3
    assert not trace.exists()
    answer = json.loads(told.out)
    jsonschema.validate(answer, DOCUMENTS["simulate"])
    assert answer["simulation"]["makespan_s"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("llama-3.1-8b",), "expected [PLAN] MODEL CLUSTER, not 1 argument"),
        (("a", "b", "c", "d"), "not 4 arguments"),
        (("nowhere.yaml", *RUN), "nowhere.yaml"),
        ((*RUN, "--slow", "drive"), "--slow 'drive' is not PART=FACTOR"),
        ((*RUN, "--slow", "drive=2"), "above 0 and at most 1"),
        ((*RUN, "--slow", "gpu=0.5", "--slow", "gpu=0.7"), "--slow gpu is given twice, 0.5 and 0.7"),
        ((*RUN, "--slow", "drvie=0.5"), "help: did you mean `drive`?"),
        ((*RUN, "--runtime", "nothing"), "unknown runtime 'nothing'"),
        (("llama-3.1-405b", "rtx-4090-desktop", "--sequence-length", "4096"), "fits"),
    ],
)
def test_mistakes_are_told(capsys, arguments, said):
    ran = ziplan(capsys, "simulate", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in " ".join(ran.err.split())


def test_what_a_plan_settles_is_not_asked_for_beside_it(capsys, planned):
    ran = with_plan(capsys, planned, "--micro-batch-size", "2", "--checkpointing", "none")
    assert ran.code == 2
    assert "--micro-batch-size, --checkpointing beside a plan" in ran.err


def test_a_plan_for_another_machine_is_refused(capsys, planned):
    ran = ziplan(capsys, "simulate", planned, "llama-3.1-8b", "rtx-4090-x2", "--sequence-length", "2048")
    assert ran.code == 2
    assert "is for 4 GPUs, and 2 x RTX 4090 has 2" in ran.err


def test_gpus_that_a_plan_leaves_idle_are_told(capsys, planned):
    ran = ziplan(capsys, "simulate", planned, "llama-3.1-8b", "rtx-4090-x8", "--sequence-length", "2048")
    assert ran.code == 0
    assert "trains on 4 of 8 GPUs" in ran.err


def test_a_plan_that_its_runtime_cannot_run_is_refused(capsys, planned, tmp_path):
    changed = tmp_path / "plan.yaml"
    changed.write_text(planned.read_text().replace("runtime: deepspeed", "runtime: ideal"))
    text = changed.read_text()
    changed.write_text(text.replace("zero_stage: 3", "zero_stage: 2"))
    ran = with_plan(capsys, changed)
    assert ran.code == 2
    assert "ideal cannot run it" in ran.err


@pytest.mark.parametrize(
    ("runtime", "key", "value", "remedy"),
    [
        ("ideal", "zero_stage", "2", "zero_stage: 3"),
        ("deepspeed", "tp_degree", "2", "tp_degree: 1, or runtime: megatron"),
        ("deepspeed", "optimizer", "{hbm: 1.0}", "as placement.optimizer is"),
        ("deepspeed", "params", "{hbm: 0.5, dram: 0.5}", "placement.params: {hbm: 1.0} or {dram: 1.0}"),
        ("fsdp", "tile_count", "2", "tile_count: 1"),
        ("fsdp", "checkpoints", "{dram: 1.0}", "placement.checkpoints: {hbm: 1.0}"),
        ("megatron", "zero_stage", "1", "placement.params: {hbm: 1.0}"),
    ],
)
def test_a_refusal_is_at_the_key_that_it_is_about_with_the_way_out(
    capsys, planned, tmp_path, runtime, key, value, remedy
):
    text = planned.read_text().replace("runtime: deepspeed", f"runtime: {runtime}")
    text = text.replace("dp_degree: 4", "dp_degree: 2") if key == "tp_degree" else text
    changed = tmp_path / "plan.yaml"
    changed.write_text(re.sub(rf"^( *{key}:) .*$", rf"\1 {value}", text, count=1, flags=re.M))
    ran = with_plan(capsys, changed)
    assert (ran.code, ran.out) == (2, "")
    assert remedy in " ".join(ran.err.split())
    assert "plan.yaml:2:1" not in ran.err
    assert ran.err.count("help: ") == ran.err.count("cannot run it: ") > 0


def test_buffers_that_do_not_suffice_are_told_with_the_way_out(capsys, planned, tmp_path):
    changed, text = tmp_path / "plan.yaml", planned.read_text()
    for key, value in (("params", "{nvme: 1.0}"), ("prefetch_depth", "0"), ("param_buffer_count", "1")):
        text = re.sub(rf"^( *{key}:) .*$", rf"\1 {value}", text, flags=re.M)
    changed.write_text(text)
    ran = with_plan(capsys, changed)
    assert (ran.code, ran.out) == (2, "")
    assert "of 'parameter swap buffers': 1 of 1 are out and none comes back" in " ".join(ran.err.split())
    assert "raise param_buffer_count" in ran.err


def test_a_plan_that_does_not_fit_is_played_and_said_not_to(capsys, planned, tmp_path):
    changed = tmp_path / "plan.yaml"
    text = re.sub(r"^micro_batch_size: .*$", "micro_batch_size: 512", planned.read_text(), flags=re.M)
    changed.write_text(text)
    ran = with_plan(capsys, changed)
    assert ran.code == 0
    assert "this plan does not fit (hbm" in " ".join(ran.out.split())
    assert json.loads(with_plan(capsys, changed, "--json").out)["estimate"]["verdict"] == "does_not_fit"


def test_a_plan_of_adapters_is_no_plan_of_full_training(capsys, tmp_path):
    lora = ("--lora-rank", "16")
    asked = ("llama-3.1-8b", "rtx-4090-x4", "--sequence-length", "2048")
    assert ziplan(capsys, "fit", *asked, *lora, "--out", tmp_path / "plan").code == 0
    made = tmp_path / "plan" / "plan.yaml"
    refused = ziplan(capsys, "simulate", made, *asked)
    assert refused.code == 2
    assert "trained parameters 41,943,040" in refused.err
    played = ziplan(capsys, "simulate", made, *asked, *lora)
    assert played.code == 0
    assert "41.9 Mparam trained" in played.out
    judged = ziplan(capsys, "check", made, *asked)
    assert (judged.code, "trained parameters 41,943,040" in judged.err) == (2, True)


def test_a_plan_of_another_model_is_refused(capsys, planned):
    ran = ziplan(capsys, "simulate", planned, "qwen2.5-7b", "rtx-4090-x4", "--sequence-length", "2048")
    assert ran.code == 2
    assert re.search(r"plan.yaml:\d+:\d+: ZP010 the plan is for llama-3.1-8b of 8,030,261,248", ran.err)


def test_other_sequences_are_warned_of(capsys, planned):
    ran = ziplan(capsys, "simulate", planned, "llama-3.1-8b", "rtx-4090-x4", "--sequence-length", "1024")
    assert ran.code == 0
    assert "was planned for sequences of 2,048 tokens, not 1,024" in ran.err


def test_several_models_are_refused_with_the_reason(capsys):
    ran = ziplan(capsys, "simulate", *RUN, "--companion", "reference=llama-3.1-8b")
    assert ran.code == 2
    assert "several models in one job cannot be played yet" in ran.err


def test_gathers_that_the_prefetch_misses_are_told_and_in_the_estimate_too(capsys):
    asked = ("llama-3.1-8b", "rtx-4090-x4", "--sequence-length", "4096", "--checkpointing", "full")
    ran = ziplan(capsys, "simulate", *asked, "--lora-rank", "16", "--json")
    told = json.loads(ran.out)
    assert told["simulation"]["makespan_s"] == pytest.approx(told["estimate"]["step_time_s"], rel=0.03)
    assert "33% of what is gathered is asked for just before the module that needs it" in ran.out
