"""Files of measurements: what they may say, and where a mistake is pointed at."""

import json

import jsonschema
import pytest
from study.runs import write

from ziplan.errors import BadInput
from ziplan.files import read
from ziplan.study.records import RATES, RecordFile, load_records, shipped_files
from ziplan.study.validate import validation


def _complaint(folder, **changes):
    with pytest.raises(BadInput) as raised:
        validation([write(folder, changes)])
    (problem,) = raised.value.problems
    assert problem.line > 0
    assert problem.file.endswith("runs.yaml")
    return problem


@pytest.mark.parametrize(
    ("changes", "said", "pointed_at"),
    [
        ({"measured": {"step_time_s": 1, "tokens_per_s": 2}}, "one rate is enough", '"measured"'),
        ({"measured": {}}, "nothing measured", '"measured"'),
        ({"measured": {"flops_per_s_per_gpu": 45e12}}, "go together", '"measured"'),
        ({"measured": {"step_time_s": 1, "convention": "model"}}, "go together", '"measured"'),
        ({"measured": {"step_time_s": 1, "outcome": "oom"}}, "has no step_time_s", '"measured"'),
        ({"measured": {"outcome": "fits", "tier": "hbm"}}, "goes with outcome: oom", '"measured"'),
        ({"measured": {"outcome": "fits", "phase": "init"}}, "goes with oom or peak_bytes", '"measured"'),
        ({"measured": {"outcome": "oom", "peak_bytes": {"hbm": 1e9}}}, "no peak_bytes", '"measured"'),
        ({"measured": {"outcome": "oom", "tier": "vram"}}, "hbm", '"vram"'),
        ({"measured": {"outcome": "oom", "phase": ["init", "train"]}}, "backward", "train"),
        ({"measured.step_time_s": -1}, "must be greater than 0", "-1"),
        ({"measured.step_tim": 1}, "unknown key `step_tim`", "step_tim"),
        ({"model": None}, "name one model", "{"),
        ({"shape": {"model_type": "gpt2"}}, "name one model", "{"),
        ({"model": "llama-3.1-8c"}, "llama-3.1-8c", "llama-3.1-8c"),
        ({"cluster.machine": "dgx-3"}, "no machine is called 'dgx-3'", "machine"),
        ({"cluster.with": {"tiers.dram.capacity": "1 parsec"}}, "parsec", "tiers.dram.capacity"),
        ({"runtime": {"name": "deepsped"}}, "unknown runtime", "deepsped"),
        ({"runtime": {"version": "latest"}}, "is no release such as", "latest"),
        ({"runtime": {"version": ""}}, "is no release such as", '"version"'),
        ({"runtime": {"version": "0.99.0"}}, "the newest release that is known", "0.99.0"),
        ({"runtime": {"version": "PyTorch", "overlap_comm": True}}, "PyTorch alone ran", "overlap_comm"),
        (
            {"runtime": {"zero": {"offload_optimizer_pin_memory": False}}},
            "changes nothing with the optimizer on the GPU",
            "offload_optimizer_pin_memory",
        ),
        (
            {"runtime": {"zero": {"stage3_max_live_parameters": 1e9}}, "plan.zero_stage": 2},
            "changes nothing with zero_stage 2",
            "stage3_max_live_parameters",
        ),
        (
            {"runtime": {"name": "megatron", "overlap_comm": False}, "plan.zero_stage": 1},
            "changes nothing with Megatron",
            "overlap_comm",
        ),
        ({"runtime": {"name": "fsdp", "version": "0.9.2"}}, "FSDP1 is", "0.9.2"),
        ({"runtime": {"name": "fsdp", "overlap_comm": True}}, "a key of DeepSpeed's config", "overlap_comm"),
        ({"runtime": {"name": "ideal", "version": "0.9.2"}}, "of DeepSpeed and of FSDP", "0.9.2"),
        ({"plan.placement": {"params": "tape"}}, "has no tier 'tape'", "tape"),
        ({"plan.placement": {"params": {"hbm": 0.5}}}, "add up to 1", "params"),
        ({"plan.zero_stage": 4}, "must be at most 3", "4"),
        ({"training.trainable": {"lora_rank": 8, "targets": ["wq"]}}, "wq", "trainable"),
        ({"training.trainable": {"lora_rank": 8}}, "targets", "trainable"),
        ({"companions": [{"role": "judge", "model": "gpt2"}]}, "'reward'", "judge"),
        ({"companions": [{"role": "critic", "model": "gpt-2"}]}, "gpt-2", "gpt-2"),
        ({"companions": [{"role": "critic", "model": "gpt2", "trainable": {"frozen": ["q"]}}]}, "'q'", "{"),
        ({"training.loading": {"dtype": "int4"}}, "dtype", "int4"),
        ({"training.loading": {"largest_file": 45}}, "has no unit", "45"),
        ({"training.sequence_length": 10**6}, "takes sequences of up to", "1000000"),
        ({"quality": "guessed"}, "exact", "guessed"),
        ({"id": "One Run"}, "id", "One Run"),
        ({"plan": None}, "missing key `plan`", "{"),
    ],
)
def test_a_mistake_is_pointed_at(tmp_path, changes, said, pointed_at):
    problem = _complaint(tmp_path, **changes)
    assert said in problem.message
    assert pointed_at in problem.text


def test_an_inline_shape_says_what_it_lacks(tmp_path):
    shape = {"model_type": "gpt2", "n_embd": 1024, "n_layer": 2, "n_head": 3, "n_positions": 4096}
    with pytest.raises(BadInput) as raised:
        validation([write(tmp_path, {"model": None, "shape": shape})])
    said = "\n".join(str(problem) for problem in raised.value.problems)
    assert "vocab_size" in said
    assert "n_head" in said


def test_all_files_are_complained_of_together(tmp_path):
    paths = [write(tmp_path, {"quality": "guessed"}, name=name) for name in ("a.yaml", "b.yaml")]
    with pytest.raises(BadInput) as raised:
        load_records(paths)
    assert [problem.file for problem in raised.value.problems] == [str(path) for path in paths]


def test_a_name_is_given_once(tmp_path):
    path = write(tmp_path, {}, {"id": "run-0"})
    with pytest.raises(BadInput, match="'run-0' is also a record of"):
        load_records([path])


def test_every_shipped_record_says_what_it_took_for_granted():
    records = load_records(shipped_files())
    assert len(records) > 50
    for record in records:
        assert record.source.url.startswith("https://"), record.entry.id
        assert record.entry.locator
        assert record.entry.assumed, record.entry.id
        assert record.entry.cluster.machine.replace("-", "").replace(".", "").isalnum()


def test_shipped_files_are_what_the_schema_says():
    schema = RecordFile.model_json_schema()
    for path in shipped_files():
        jsonschema.validate(read(path).data, schema)


def test_timed_is_having_a_rate(tmp_path):
    assert all(record.entry.measured.timed for record in load_records([write(tmp_path, {})]))
    path = write(tmp_path, {"measured": {"outcome": "oom"}})
    assert not any(record.entry.measured.timed for record in load_records([path]))
    assert set(RATES) <= set(load_records([path])[0].entry.measured.model_dump())


def _omitted(folder, **changes):
    """A file that lists one run as unpredictable."""
    entry = {
        "id": "quantised",
        "locator": "issue 1",
        "outcome": "oom",
        "tier": "hbm",
        "reason": "4-bit weights",
    }
    document = {
        "schema": "ziplan.measurement/1",
        "source": {"title": "A test", "url": "https://example.org"},
        "unpredictable": [entry | changes],
    }
    path = folder / "omitted.yaml"
    path.write_text(json.dumps(document, indent=2))
    return path


def test_a_run_may_be_listed_with_the_reason_why_not(tmp_path):
    answer = validation([write(tmp_path, {}), _omitted(tmp_path, url="https://example.org/1")])
    (each,) = answer.unpredicted
    assert (each.id, each.reason, each.outcome, each.tier) == ("quantised", "4-bit weights", "oom", "hbm")
    assert (each.url, each.own_url) == ("https://example.org", "https://example.org/1")
    assert not load_records([_omitted(tmp_path)])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reason": ""}, "reason"),
        ({"outcome": "slow"}, "config_error"),
        ({"id": "run-0"}, "is also a record of"),
    ],
)
def test_a_mistake_in_such_a_listing_is_pointed_at(tmp_path, changes, said):
    with pytest.raises(BadInput) as raised:
        validation([write(tmp_path, {}), _omitted(tmp_path, **changes)])
    (problem,) = raised.value.problems
    assert said in problem.message
    assert problem.file.endswith("omitted.yaml")
    assert problem.line > 0


def test_a_file_has_some_run(tmp_path):
    path = tmp_path / "empty.yaml"
    path.write_text(
        'schema: ziplan.measurement/1\nsource: {title: A, url: "https://example.org"}\nrecords: []\n'
    )
    with pytest.raises(BadInput, match="no run"):
        load_records([path])


def test_a_phase_may_be_one_or_several(tmp_path):
    ends = [{"outcome": "oom", "tier": "hbm", "phase": phase} for phase in ("init", ["forward", "backward"])]
    records = load_records([write(tmp_path, *({"measured": end} for end in ends))])
    assert [record.entry.measured.phase for record in records] == [("init",), ("forward", "backward")]
