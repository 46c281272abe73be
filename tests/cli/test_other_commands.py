"""limits, explain, profiles, models, schema, init."""

import json
import os

import jsonschema
import pytest
from cli.runs import ziplan
from report.answers import answer

from ziplan.cli.schema import schema_names
from ziplan.files import read
from ziplan.report.laws_page import every_law
from ziplan.report.schemas import DOCUMENTS


def test_explain_article_shows_every_figure(capsys):
    ran = ziplan(capsys, "explain", "article")
    assert ran.code == 0
    for row in range(1, 34):
        assert f"\n{row:>2}  " in ran.out
    assert "article: 3,900; exact: 3,906.25 FLOP/B" in ran.out
    document = json.loads(ziplan(capsys, "explain", "article", "--json").out)
    jsonschema.validate(document, DOCUMENTS["article"])
    assert document["figures"]["3"] == 3906.25


def test_explain_knows_every_law(capsys):
    for name in [law.name for law in every_law()]:
        ran = ziplan(capsys, "explain", name)
        assert ran.code == 0
        assert "source:" in ran.out


def test_explain_has_a_word_for_what_has_no_unit(capsys):
    said = ziplan(capsys, "explain", "step_cost").out
    assert "step_cost [USD]" in said
    assert "node_count       number" in said


def test_explain_lists_the_laws(capsys):
    ran = ziplan(capsys, "explain", "laws")
    assert ran.code == 0
    listed = [line for line in ran.out.splitlines() if line and not line.startswith(" ") and " " not in line]
    assert sorted(listed) == sorted(law.name for law in every_law())
    assert "explain laws" in ziplan(capsys, "explain", "zzz").err
    assert ziplan(capsys, "explain", "laws", "--json").code == 2


def test_explain_says_what_was_meant(capsys):
    ran = ziplan(capsys, "explain", "machine_balanc")
    assert (ran.code, ran.out) == (2, "")
    assert "did you mean machine_balance" in ran.err


def test_limits_are_three_ceilings_and_a_time(capsys, monkeypatch):
    monkeypatch.setattr("ziplan.cli.limits.answer_to", lambda request: answer())
    said = ziplan(capsys, "limits", "llama-3.1-8b", "dgx-a100-80g").out
    for word in ("by capacity", "by memory", "by compute", "training time"):
        assert word in said
    document = json.loads(ziplan(capsys, "limits", "llama-3.1-8b", "dgx-a100-80g", "--json").out)
    jsonschema.validate(document, DOCUMENTS["limits"])


def test_models_are_listed_and_shown(capsys):
    names = ziplan(capsys, "models").out.split()
    assert names == ziplan(capsys, "models", "list").out.split()
    assert "llama-3.1-70b" in names
    assert "mlp.down_proj" in ziplan(capsys, "models", "show", "llama-3.1-8b").out
    for name in names:
        document = json.loads(ziplan(capsys, "models", "show", name, "--json").out)
        jsonschema.validate(document, DOCUMENTS["model"])


def test_profiles_are_listed_and_shown_with_their_sources(capsys):
    said = ziplan(capsys, "profiles").out
    assert said == ziplan(capsys, "profiles", "list").out
    for name in (line.strip() for line in said.splitlines() if line.startswith(" ")):
        ran = ziplan(capsys, "profiles", "show", name)
        assert ran.code == 0, ran.err
        assert "\n[1]" in ran.out
    shown = ziplan(capsys, "profiles", "show", "dgx-a100-80g").out
    assert "gpu.memory.capacity" in shown
    assert "datasheet" in shown
    assert ziplan(capsys, "profiles", "show", "dgx-a100-80").code == 2


@pytest.mark.parametrize("name", schema_names())
def test_every_schema_is_one(name, capsys):
    schema = json.loads(ziplan(capsys, "schema", name).out)
    jsonschema.Draft202012Validator.check_schema(schema)


def test_an_unknown_schema_lists_the_known(capsys):
    ran = ziplan(capsys, "schema", "modle.yaml")
    assert ran.code == 2
    assert "model.yaml" in ran.err


def test_init_writes_files_that_its_schemas_accept(capsys, tmp_path):
    ran = ziplan(capsys, "init", tmp_path / "new")
    assert ran.code == 0
    assert sorted(os.listdir(tmp_path / "new")) == [
        "cluster.schema.json", "cluster.yaml", "model.schema.json", "model.yaml",
    ]  # fmt: skip
    for name in ("model", "cluster"):
        schema = json.loads((tmp_path / "new" / f"{name}.schema.json").read_text())
        path = tmp_path / "new" / f"{name}.yaml"
        jsonschema.validate(read(path).data, schema)
        assert path.read_text().startswith(f"# yaml-language-server: $schema={name}.schema.json\n")


def test_init_says_how_to_go_on_in_words_that_a_shell_takes(capsys, tmp_path):
    folder = tmp_path / "my run"
    said = ziplan(capsys, "init", folder).out
    assert f"next: ziplan fit '{folder}/model.yaml' '{folder}/cluster.yaml'" in said


def test_init_overwrites_nothing(capsys, tmp_path):
    (tmp_path / "cluster.yaml").write_text("mine")
    ran = ziplan(capsys, "init", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "cluster.yaml already there" in ran.err
    assert "name another folder" in ran.err
    assert os.listdir(tmp_path) == ["cluster.yaml"]
    assert (tmp_path / "cluster.yaml").read_text() == "mine"


def test_shipped_machines_are_what_the_machine_schema_says(capsys):
    import ziplan.hardware.shipped as shipped

    schema = json.loads(ziplan(capsys, "schema", "machine.yaml").out)
    judge = jsonschema.validators.validator_for(schema)(schema)
    judge.check_schema(schema)
    for name in shipped.list_profiles("nodes"):
        judge.validate(shipped.shipped("nodes", name).data)


@pytest.mark.parametrize(("group", "name"), [("profiles", "rtx-4090-desktop"), ("models", "qwen2.5-7b")])
def test_a_name_alone_is_shown(capsys, group, name):
    ran = ziplan(capsys, group, name)
    assert (ran.code, ran.out) == (0, ziplan(capsys, group, "show", name).out)
    wrong = ziplan(capsys, group, f"{name}x")
    assert wrong.code == 2
    assert "did you mean" in wrong.err
    assert name in wrong.err.replace(f"{name}x", "")
