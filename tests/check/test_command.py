"""`ziplan check` as a user runs it: verdicts, exit codes, forms, suppressions, gates, a baseline."""

import csv
import io
import json
import xml.etree.ElementTree as ET

import jsonschema
import pytest
from check.asked import BASE, CPU, GONE, NVME, ZERO, changed
from cli.runs import process, ziplan
from report.strictness import strict

from ziplan.check.rules import RULES
from ziplan.report.check_schema import CHECK

RUN = ("llama-3.1-8b", "dgx-a100-80g", "--sequence-length", "2048", "--checkpointing", "full")
BAD = {"wall_clock_breakdown": True, f"{ZERO}.reduce_bucket_size": "auto"}
DEADLY = {**NVME, f"{ZERO}.stage3_prefetch_bucket_size": 1}


@pytest.fixture
def config(tmp_path):
    """Writes a config and gives its path."""

    def write(*layers, name="ds_config.json"):
        changes = {}
        for layer in layers:
            changes |= layer
        path = tmp_path / name
        path.write_text(json.dumps(changed(BASE, changes), indent=2))
        return path

    return write


def judged(capsys, *arguments):
    """The document of a check, and its code."""
    ran = ziplan(capsys, "check", *arguments, "--json")
    document = json.loads(ran.out)
    jsonschema.validate(document, strict(CHECK))
    return document, ran.code


def codes(document):
    return {each["code"] for each in document["findings"]}


def test_a_config_that_fits_passes(config, capsys):
    document, code = judged(capsys, config(), *RUN)
    assert (code, document["verdict"], document["counts"]["error"]) == (0, "fits", 0)
    assert document["plan"]["zero_stage"] == 3
    assert document["simulation"]["makespan_s"] > 0
    assert document["estimate"]["step_time_s"] > 0


def test_what_kills_it_fails_where_it_stands(config, capsys):
    path = config(DEADLY)
    document, code = judged(capsys, path, *RUN)
    (finding,) = (each for each in document["findings"] if each["code"] == "ZP315")
    assert code == 1
    line = path.read_text().splitlines()[finding["line"] - 1]
    assert line[finding["column"] - 1 :].startswith('"stage3_prefetch_bucket_size"')


@pytest.mark.parametrize(
    ("cluster", "more", "code"),
    [
        ("dgx-a100-80g", (), 0),
        ("dgx-a100-80g", ("--set", "tiers.dram.capacity=128 GB"), 1),
        ("dgx-a100-80g", ("--set", "tiers.dram.capacity=128 GB", "--exit-zero"), 0),
        ("dgx-a100-80g", ("--set", "tiers.dram.capacity=230 GB"), 0),
        ("dgx-a100-80g", ("--set", "tiers.dram.capacity=230 GB", "--on-tight", "fail"), 1),
        ("dgx-a100-80g", ("--fail-on", "warning"), 1),
        ("4x no-such-machine", (), 2),
        ("rtx-4090-x8", ("--set", "cpu.adam_params_per_s=nonsense"), 2),
    ],
)
def test_exit_codes(config, capsys, cluster, more, code):
    ran = ziplan(capsys, "check", config(CPU), RUN[0], cluster, *RUN[2:], *more)
    assert ran.code == code, ran.out + ran.err
    assert bool(ran.out) == (code != 2)


def test_what_nobody_states_and_decides_is_unknown(config, capsys):
    path = config({"train_micro_batch_size_per_gpu": 12})
    asked = (path, "llama-3.1-8b", "dgx-a100-80g", "--sequence-length", "2048")
    document, code = judged(capsys, *asked)
    assert (document["verdict"], code) == ("unknown", 3)
    assert "ZP307" in codes(document)
    assert judged(capsys, *asked, "--on-unknown", "pass")[1] == 0
    assert judged(capsys, *asked, "--checkpointing", "full")[0]["verdict"] == "fits"
    assert judged(capsys, *asked, "--checkpointing", "none")[0]["verdict"] == "does_not_fit"


def test_a_rejected_config_has_no_plan_and_every_object(config, capsys):
    document, code = judged(capsys, config({f"{ZERO}.stage": 7}), *RUN)
    assert (code, document["verdict"], document["plan"]) == (1, "unknown", None)
    assert document["estimate"]["step_time_s"] is None
    assert any(note.startswith("estimate.step_time_s: ") for note in document["notes"])
    text = ziplan(capsys, "check", config({f"{ZERO}.stage": 7}), *RUN).out
    assert "it comes to no plan" in text
    assert "ZP301" in text


def test_nothing_is_suppressed_silently(config, capsys, tmp_path):
    path = config(CPU, BAD)
    before, _ = judged(capsys, path, *RUN)
    assert {"ZP303", "ZP218"} <= codes(before)
    (tmp_path / ".ziplan.yaml").write_text(
        "ignore:\n"
        f"  - {{code: ZP303, path: '{ZERO}.*', reason: it is large enough}}\n"
        "  - {code: ZP404, reason: never found here}\n"
    )
    after, _ = judged(capsys, path, *RUN, "--ignore", "ZP218@wall_clock_breakdown")
    assert codes(before) - codes(after) == {"ZP303", "ZP218"}
    assert {each["code"]: each["reason"] for each in after["suppressed"]} == {
        "ZP303": "it is large enough",
        "ZP218": "on the command line",
    }
    assert [each["code"] for each in after["unused_suppressions"]] == ["ZP404"]
    text = ziplan(capsys, "check", path, *RUN).out
    for word in ("suppressed ZP303", "it is large enough", "unused suppression ZP404"):
        assert word in text


def test_a_suppression_of_another_key_leaves_the_finding(config, capsys):
    document, _ = judged(capsys, config(BAD), *RUN, "--ignore", "ZP218@flops_profiler.*")
    assert "ZP218" in codes(document)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ignore: [{code: ZP999, reason: x}]", "no rule is called"),
        ("ignore: [{code: ZP303}]", "reason"),
        ("ignore: [{code: ZP303, reason: ''}]", "reason"),
        ("gates: {max_step_time: 20}", "max_step_time"),
        ("gates: {max_step: 20 s}", "max_step_time"),
        ("gates: {max_memory: 2}", "max_memory"),
        ("nonsense: 1", "nonsense"),
    ],
)
def test_a_wrong_policy_is_told_with_its_line(config, capsys, tmp_path, text, said):
    (tmp_path / ".ziplan.yaml").write_text(text + "\n")
    ran = ziplan(capsys, "check", config(), *RUN)
    assert ran.code == 2
    assert ".ziplan.yaml:1:" in ran.err
    assert said in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--ignore", "ZP999"),
        ("--ignore", ""),
        ("--max-regress", "3%"),
        ("--baseline", "no-such.yaml"),
        ("--gates", "no-such.yaml"),
        ("--launch", "no-such.sh"),
        ("-o", "json="),
        ("-o", ""),
        ("--format", "pdf"),
    ],
)
def test_a_wrong_flag_is_told(config, capsys, arguments):
    ran = ziplan(capsys, "check", config(), *RUN, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "bug in ziplan" not in ran.err


def test_gates_fail_and_name_what_they_hold(config, capsys, tmp_path):
    gates = tmp_path / "gates.yaml"
    gates.write_text("max_step_time: 1 ms\nmax_memory: {hbm: 0.0125}\nmin_tokens_per_s: 1\n")
    document, code = judged(capsys, config(), *RUN, "--gates", gates)
    broken = [each["message"] for each in document["findings"] if each["code"] == "ZP511"]
    assert code == 1
    assert [message.partition(":")[0] for message in sorted(broken)] == ["max_memory", "max_step_time"]
    assert any(message.endswith("the gate is 1.25%") for message in broken), "not rounded to whole percents"


def test_a_baseline_fails_what_became_slower(config, capsys):
    fast, slow = config(name="fast.json"), config(CPU, name="slow.json")
    document, code = judged(capsys, slow, *RUN, "--baseline", fast, "--max-regress", "3%")
    assert (code, "ZP512" in codes(document)) == (1, True)
    assert document["baseline"]["max_regress"] == 0.03
    assert judged(capsys, fast, *RUN, "--baseline", slow)[1] == 0
    assert judged(capsys, slow, *RUN, "--baseline", fast, "--max-regress", "500%")[1] == 0


@pytest.mark.parametrize("share", ["3", "1", "1.5"])
def test_a_share_without_a_sign_is_below_one(config, capsys, share):
    """Somebody who writes 3 means 3%, and a gate of 300% would let everything through."""
    path = config()
    ran = ziplan(capsys, "check", path, *RUN, "--baseline", path, "--max-regress", share)
    assert ran.code == 2
    assert f"--max-regress {share}%" in ran.err
    document = judged(capsys, path, *RUN, "--baseline", path, "--max-regress", "0.03")[0]
    assert document["baseline"]["max_regress"] == 0.03


def test_a_written_plan_and_its_own_config_are_judged_alike(capsys, tmp_path):
    asked = (
        "llama-3.1-70b",
        "dgx-a100-80g",
        "--sequence-length",
        "2048",
        "--set",
        "tiers.dram.capacity=512 GB",
    )
    fitted = ziplan(capsys, "fit", *asked, "--global-batch-size", "64", "--out", tmp_path, "--json")
    told = json.loads(fitted.out)
    plan, _ = judged(capsys, tmp_path / "plan.yaml", *asked)
    written, _ = judged(capsys, tmp_path / "ds_config.json", *asked)
    assert plan["counts"]["error"] == written["counts"]["error"] == 0
    assert plan["plan"] == told["plan"]
    for document in (plan, written):
        assert document["verdict"] == told["verdict"]
        assert document["estimate"]["step_time_s"] == pytest.approx(told["estimate"]["step_time_s"], rel=1e-3)
        for tier, memory in told["memory"].items():
            assert document["memory"][tier]["needed_high_bytes"] == pytest.approx(
                memory["needed_high_bytes"], rel=1e-3
            )


def test_a_plan_for_more_gpus_or_other_tiers_is_refused(capsys, tmp_path):
    asked = ("llama-3.1-8b", "dgx-a100-80g", "--sequence-length", "2048")
    ziplan(capsys, "fit", *asked, "--out", tmp_path)
    ran = ziplan(capsys, "check", tmp_path / "plan.yaml", asked[0], "rtx-4090-desktop", *asked[2:])
    assert ran.code == 2
    assert "plan.yaml:" in ran.err
    assert "8 GPUs" in ran.err


def test_stdout_has_the_answer_and_files_have_theirs(config, capsys, tmp_path):
    path = config(CPU, BAD)
    for form in ("json", "md", "csv", "github", "gitlab", "junit", "sarif", "html"):
        ran = ziplan(capsys, "check", path, *RUN, "--format", form)
        target = tmp_path / f"out.{form}"
        both = ziplan(capsys, "check", path, *RUN, "-o", f"{form}={target}")
        assert target.read_text() == ran.out
        assert "findings" in both.out or "warning" in both.out
    only = ziplan(capsys, "check", path, *RUN, "--format", "csv", "-o", tmp_path / "only.csv")
    assert only.out == ""
    assert (tmp_path / "only.csv").read_text().startswith("code,")


def test_csv_has_a_line_for_each_finding(config, capsys):
    rows = list(
        csv.DictReader(io.StringIO(ziplan(capsys, "check", config(CPU, BAD), *RUN, "--format", "csv").out))
    )
    document, _ = judged(capsys, config(CPU, BAD), *RUN)
    assert [row["code"] for row in rows] == [each["code"] for each in document["findings"]]
    assert [int(row["line"]) for row in rows] == [each["line"] for each in document["findings"]]


def test_annotations_escape_what_would_end_them(config, capsys):
    out = ziplan(capsys, "check", config(DEADLY), *RUN, "--format", "github").out
    commands = out.splitlines()
    assert all(command.startswith(("::error ", "::warning ", "::notice ")) for command in commands)
    (deadly,) = (command for command in commands if "title=ZP315" in command)
    properties, _, message = deadly.removeprefix("::error ").partition("::")
    fields = dict(field.split("=", 1) for field in properties.split(","))
    assert fields.keys() == {"file", "line", "col", "title"}
    assert "%0Afix" in message


def test_code_quality_has_the_fields_that_gitlab_reads(config, capsys):
    rows = json.loads(ziplan(capsys, "check", config(CPU, BAD), *RUN, "--format", "gitlab").out)
    assert rows
    assert len({row["fingerprint"] for row in rows}) == len(rows)
    for row in rows:
        assert row.keys() == {"description", "check_name", "fingerprint", "severity", "location"}
        assert row["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert row["location"]["lines"]["begin"] >= 1


def test_junit_fails_for_errors_alone(config, capsys):
    root = ET.fromstring(ziplan(capsys, "check", config(DEADLY), *RUN, "--format", "junit").out)
    cases = root.findall("./testsuite/testcase")
    document, _ = judged(capsys, config(DEADLY), *RUN)
    failed = [case.get("name") for case in cases if case.find("failure") is not None]
    assert len(cases) == 1 + len(document["findings"])
    assert len(failed) == document["counts"]["error"] == int(root.get("failures"))
    assert any(name.startswith("ZP315") for name in failed)


def test_html_and_markdown_escape_what_a_file_says(config, capsys, tmp_path):
    path = config({"<script>alert(1)</script>|`x`": 1}, name="a<b>.json")
    page = ziplan(capsys, "check", path, *RUN, "--format", "html").out
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert page.count("<html") == page.count("</html>") == 1
    row = next(
        line
        for line in ziplan(capsys, "check", path, *RUN, "--format", "md").out.splitlines()
        if "ZP302" in line
    )
    assert "<script" not in row
    assert row.count("|") - row.count("\\|") == 5


def test_the_same_question_has_the_same_answer(config):
    arguments = ("check", config(CPU, BAD), *RUN, "--format")
    for form in ("json", "sarif"):
        one, other = (process(*arguments, form, env={"PYTHONHASHSEED": seed}).out for seed in ("1", "2"))
        assert one == other


def test_narrow_terminals(config, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = ziplan(capsys, "check", config(DEADLY), *RUN).out.splitlines()
    told = [line for line in lines if "-->" not in line and " | " not in line]
    assert max(map(len, told)) <= 60


def test_other_forms_of_config(capsys, tmp_path):
    deepspeed = tmp_path / "ds.json"
    deepspeed.write_text(json.dumps(changed(BASE, {**CPU, "gradient_accumulation_steps": "auto"})))
    arguments = tmp_path / "args.json"
    arguments.write_text(
        json.dumps(
            {
                "output_dir": "out",
                "per_device_train_batch_size": 1,
                "gradient_accumulation_steps": 8,
                "bf16": True,
                "learning_rate": 1e-5,
                "gradient_checkpointing": True,
                "deepspeed": "ds.json",
            }
        )
    )
    document, code = judged(capsys, arguments, *RUN[:4])
    assert (document["config"]["form"], document["verdict"], code) == ("arguments", "fits", 0)
    assert document["plan"]["activation_checkpointing"] == "full"
    inner = [each for each in document["findings"] if each["path"].startswith(ZERO)]
    assert inner
    assert {each["file"] for each in inner} == {str(deepspeed)}
    script = tmp_path / "train.sh"
    script.write_text(
        "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --per_device_train_batch_size 1 \\\n"
        "  --gradient_accumulation_steps 8 --bf16 true --gradient_checkpointing true --learning_rate 1e-5\n"
    )
    document, code = judged(capsys, script, *RUN[:4])
    assert (document["config"]["form"], document["verdict"], code) == ("command", "fits", 0)
    # One thread for each of eight ranks is as fast as this machine's memory.
    assert "ZP206" not in codes(document)
    accelerate = tmp_path / "accelerate.yaml"
    accelerate.write_text(
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
        "deepspeed_config: {zero_stage: 3, offload_optimizer_device: cpu, offload_param_device: cpu}\n"
    )
    document, _ = judged(capsys, accelerate, *RUN, "--micro-batch-size", "1")
    assert document["config"]["form"] == "accelerate"
    assert document["plan"]["placement"]["optimizer"] == {"dram": 1.0}


def test_a_precision_that_the_gpu_has_not_is_refused_at_its_place(config, capsys):
    ran = ziplan(capsys, "check", config(), RUN[0], "dgx-2", *RUN[2:], "--precision", "fp16")
    assert ran.code == 2
    assert "ds_config.json:" in ran.err
    assert "bf16" in ran.err


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", "\x00", '{"train_batch_size": {}}', "a: [", "%"]
)
def test_no_file_traces_back(capsys, tmp_path, text):
    path = tmp_path / "ds_config.json"
    path.write_text(text)
    ran = ziplan(capsys, "check", path, *RUN)
    assert ran.code in (1, 2, 3)
    assert "bug in ziplan" not in ran.err


def test_every_rule_has_a_page(capsys):
    for code, rule in RULES.items():
        ran = ziplan(capsys, "explain", code.lower())
        assert ran.code == 0
        assert rule.title in ran.out
    listed = ziplan(capsys, "explain", "rules").out
    assert all(code in listed for code in RULES)
    assert ziplan(capsys, "explain", "ZP999").code == 2


def test_unset_keys_are_gone():
    assert "bf16" not in changed(BASE, {"bf16": GONE})
