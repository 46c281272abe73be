"""The table of keys, held against DeepSpeed's own classes and look-ups."""

import json

import pytest
from reading.asking import asked

from ziplan.runtimes.deepspeed.reading.kinds import WrongValueError
from ziplan.runtimes.deepspeed.reading.loose_tables import LOOSE_SECTIONS, REMOVED
from ziplan.runtimes.deepspeed.reading.strict_tables import STRICT_SECTIONS
from ziplan.runtimes.deepspeed.reading.walk import SECTIONS
from ziplan.runtimes.deepspeed.reading.zero_table import ZERO_SECTIONS

STRICT = [*ZERO_SECTIONS, *STRICT_SECTIONS]
BOUNDS = {"gt": ("low", True), "ge": ("low", False), "lt": ("high", True), "le": ("high", False)}


@pytest.fixture(scope="module")
def classes():
    (answer,) = asked(["sections"])
    return answer["answer"]


@pytest.mark.engine
def test_every_section_is_of_a_class_and_every_class_has_a_section(classes):
    assert set(classes) == {section.path for section in STRICT}


@pytest.mark.engine
@pytest.mark.parametrize("section", STRICT, ids=lambda section: section.path)
def test_a_strict_section_has_the_fields_of_its_class(section, classes):
    fields = classes[section.path]
    spelt = {(info["alias"] or name, name if info["alias"] else "") for name, info in fields.items()}
    assert {(key.name, key.other) for key in section.keys} == spelt


def _default(key):
    return None if key.section else json.loads(json.dumps(key.default))


@pytest.mark.engine
@pytest.mark.parametrize("section", STRICT, ids=lambda section: section.path)
def test_defaults_and_bounds_are_those_of_the_class(section, classes):
    for key in section.keys:
        info = classes[section.path][key.other or key.name]
        if not key.section and key.kind.name != "nothing":
            assert _default(key) == info["default"], key.name
        bounds = {}
        for name, value in info["bounds"].items():
            end, exclusive = BOUNDS[name]
            bounds[end] = (value, exclusive)
        ours = {
            end: (getattr(key, end), key.exclusive)
            for end in ("low", "high")
            if getattr(key, end) is not None
        }
        assert ours == bounds, key.name


@pytest.mark.engine
@pytest.mark.parametrize("section", STRICT, ids=lambda section: section.path)
def test_deprecated_keys_are_those_of_the_class(section, classes):
    for key in section.keys:
        replaced = classes[section.path][key.other or key.name]["deprecated"]
        assert key.effect.startswith("deprecated") == (replaced is not None), key.name
        if key.instead:
            assert key.instead.removeprefix("stage3_") == replaced


VALUES = [
    *(None, True, False, 0, 1, 2, 3, 4, -1, 512, 1.0, 0.0, 0.5, 1.5, 3.0, 1e8, 1e18, 1e19, 1e25),
    *(
        2**53,
        2**62,
        "1",
        "1.0",
        " 1 ",
        "1_0",
        "5e8",
        "0.5",
        "1.",
        "+1",
        "-1",
        "01",
        "true",
        "Yes",
        "off",
        "T",
    ),
    *("", "cpu", "CPU", "none", "nvme", "auto", "x", "z1", "torch", "symmetric", [], ["a"], [1], ["z1"], {}),
    *({"a": 1}, [["a"]], "step", "1e2", "inf", "_1", "1__0"),
]
FIELD_CHECKS = ("loss_scale", "loss_scale_window", "min_loss_scale", "select_strategy", "leaf_module")
"""Fields with validators of their own, which the comparison of whole configs covers."""
UNEQUAL = ("select_interval", "update_interval", "classes", "names", "name_suffixes", "dtype")


@pytest.fixture(scope="module")
def conversions(classes):
    annotations = {_annotation(info["annotation"]) for fields in classes.values() for info in fields.values()}
    plain = sorted(a for a in annotations if a and "Config" not in a and "dtype" not in a)
    answers = asked(*(["converted", annotation, VALUES] for annotation in plain))
    return {a: answer["answer"] for a, answer in zip(plain, answers, strict=True)}


def _annotation(text):
    for before, after in (("<class '", ""), ("<enum '", ""), ("'>", ""), ("typing.", ""), ("pathlib.", "")):
        text = text.replace(before, after)
    return text if text != "QuantTypeEnum" else ""


@pytest.mark.engine
@pytest.mark.parametrize("section", STRICT, ids=lambda section: section.path)
def test_a_kind_takes_what_its_annotation_takes(section, classes, conversions):
    for key in section.keys:
        annotation = _annotation(classes[section.path][key.other or key.name]["annotation"])
        if annotation not in conversions or key.name in (*FIELD_CHECKS, *UNEQUAL):
            continue
        for value, wanted in zip(VALUES, conversions[annotation], strict=True):
            # A path's empty text is a dot, and 1_0 is no stage: neither tells anything of a config.
            if (value == "" and key.kind.name.startswith("path")) or value == "1_0":
                continue
            try:
                took = [key.kind.take(value)]
            except WrongValueError:
                took = None
            assert took == wanted, (key.name, value)


ELSEWHERE = {
    "": {"curriculum_learning", "sequence_parallel_size", "allgather_size"},
    "pipeline": set(),
    "optimizer": set(),
}
"""Keys of the table that a plain config's reading does not come by: DeepSpeed asks for them in some cases."""


@pytest.mark.engine
def test_loose_sections_have_the_keys_that_are_looked_up():
    (answer,) = asked(["lookups"])
    for path, looked_up in answer["answer"].items():
        names = set(SECTIONS[path].names)
        removed = {name for name in REMOVED if "." not in name}
        assert set(looked_up) - removed - names == set(), path
        assert names - set(looked_up) <= ELSEWHERE.get(path, set()), path


@pytest.mark.engine
def test_removed_keys_are_refused_by_their_presence():
    configs = []
    for path in REMOVED:
        section, _, name = path.rpartition(".")
        configs.append({"train_batch_size": 1, **({section: {name: None}} if section else {name: None})})
    answers = asked(*(["deepspeed_config", config, 1] for config in configs))
    assert {answer.get("error") for answer in answers} == {"DeepSpeedConfigError"}


def test_every_key_says_what_it_does_and_names_are_unique():
    for section in (*STRICT, *LOOSE_SECTIONS):
        names = [name for key in section.keys for name in (key.name, key.other) if name]
        assert len(set(names)) == len(names), section.path
        assert all(key.effect for key in section.keys), section.path
        assert section.source.endswith(".py") or ":" in section.source


def test_sections_that_keys_name_exist():
    unread = {"expert_parallel", "data_efficiency", "autotuning", "timers", "optimizer.params"}
    named = {key.section for section in SECTIONS.values() for key in section.keys if key.section}
    assert named - set(SECTIONS) == unread
