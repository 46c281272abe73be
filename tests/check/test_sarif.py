"""The SARIF log against the parts of SARIF 2.1.0 that it uses.

The schema below was written for this test from the specification (sections 3.13 to 3.30 of
https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html): the objects that ziplan writes, with
what each requires and allows. It is not OASIS's own schema, of which the specification's terms leave open
whether a copy may be shipped here.
"""

import json

import jsonschema
import pytest
from check.asked import CPU, NVME, ZERO, Ask, changed

from ziplan.check.policy import Ignore
from ziplan.check.rules import RULES
from ziplan.check.run import check
from ziplan.report.check_sarif import sarif


def closed(required, **properties):
    """An object with these keys and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


TEXT = {"type": "string", "minLength": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
MESSAGE = closed(["text"], text=TEXT)
RULE = closed(
    ["id", "shortDescription"],
    id=TEXT,
    name={"type": "string", "pattern": "^[A-Za-z0-9]+$"},
    shortDescription=MESSAGE,
    fullDescription=MESSAGE,
    help=MESSAGE,
    defaultConfiguration=closed([], level=LEVEL),
)
REGION = closed(
    ["startLine"],
    startLine={"type": "integer", "minimum": 1},
    startColumn={"type": "integer", "minimum": 1},
)
LOCATION = closed(
    ["physicalLocation"],
    physicalLocation=closed(
        ["artifactLocation"],
        artifactLocation=closed(["uri"], uri={"type": "string", "pattern": r"^[^ \\]+$"}),
        region=REGION,
    ),
    logicalLocations={"type": "array", "items": closed(["fullyQualifiedName"], fullyQualifiedName=TEXT)},
)
RESULT = closed(
    ["ruleId", "message", "level", "locations"],
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level=LEVEL,
    message=MESSAGE,
    locations={"type": "array", "items": LOCATION, "minItems": 1},
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    suppressions={
        "type": "array",
        "items": closed(["kind"], kind={"enum": ["inSource", "external"]}, justification=TEXT),
    },
)
LOG = closed(
    ["$schema", "version", "runs"],
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"const": "2.1.0"},
    runs={
        "type": "array",
        "minItems": 1,
        "items": closed(
            ["tool", "results"],
            tool=closed(
                ["driver"],
                driver=closed(
                    ["name"],
                    name=TEXT,
                    version=TEXT,
                    rules={"type": "array", "items": RULE, "uniqueItems": True},
                ),
            ),
            columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
            results={"type": "array", "items": RESULT},
            properties={"type": "object"},
        ),
    },
)

ASKED = {
    "nothing found": Ask(),
    "a plan that dies": Ask({**NVME, f"{ZERO}.stage3_prefetch_bucket_size": 1}),
    "a rejected config": Ask({f"{ZERO}.stage": 9}),
    "it does not fit": Ask(CPU, settings=("tiers.dram.capacity=64 GB",)),
}


@pytest.mark.parametrize("name", ASKED)
def test_the_log_is_valid(tmp_path, name):
    checked = check(ASKED[name].case(tmp_path))
    log = json.loads(sarif(checked))
    jsonschema.validate(log, LOG)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len(run["results"]) == len(checked.findings)
    for result, finding in zip(run["results"], checked.findings, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.code
        assert result["level"] == RULES[finding.code].severity


def test_suppressed_findings_are_in_it_with_their_reason(tmp_path):
    entry = Ignore("ZP211", "", "the GPUs are shared")
    log = json.loads(sarif(check(ASKED["a plan that dies"].case(tmp_path), [entry])))
    jsonschema.validate(log, LOG)
    (suppressed,) = (each for each in log["runs"][0]["results"] if "suppressions" in each)
    assert suppressed["ruleId"] == "ZP211"
    assert suppressed["suppressions"] == [{"kind": "external", "justification": "the GPUs are shared"}]


def test_a_comment_suppresses_in_the_source(tmp_path):
    case = ASKED["a plan that dies"].case(tmp_path)
    (found, *_) = check(case).findings
    entry = Ignore(found.code, "", "known", found.file, found.line)
    log = json.loads(sarif(check(case, [entry])))
    jsonschema.validate(log, LOG)
    (suppressed,) = (each for each in log["runs"][0]["results"] if "suppressions" in each)
    assert suppressed["suppressions"] == [{"kind": "inSource", "justification": "known"}]


def test_a_file_is_a_uri(tmp_path, monkeypatch):
    folder = tmp_path / "a folder"
    case = Ask().case(folder)
    from dataclasses import replace

    path = folder / "ds #1.json"
    path.write_text(json.dumps(changed({}, {"train_batch_size": 8})))
    document = case.document
    document.name = str(path)
    checked = check(replace(case, document=document, plan=None))
    log = json.loads(sarif(checked._replace(findings=ASKED["a plan that dies"].found(tmp_path / "x")[:1])))
    jsonschema.validate(log, LOG)
