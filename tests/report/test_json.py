"""Documents: against their published schemas, deterministic, and with a reason for every null."""

import json
import math
from dataclasses import replace

import jsonschema
import pytest
from report.answers import answer, on_fewer
from report.strictness import strict

from ziplan.hardware.cluster import Price
from ziplan.report.json import dumps, fit_document, limits_document, model_document
from ziplan.report.schemas import DOCUMENTS
from ziplan.study import article
from ziplan.workload.load import load_workload

VERDICTS = ("fits", "tight", "does_not_fit", "unknown")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_schema_is_a_schema(name):
    jsonschema.Draft202012Validator.check_schema(DOCUMENTS[name])


@pytest.mark.parametrize("verdict", VERDICTS)
def test_fit_matches_its_schema_whatever_the_verdict(verdict):
    document = json.loads(dumps(fit_document(answer(verdict), {"a.json": "{}"})))
    jsonschema.validate(document, strict(DOCUMENTS["fit"]))
    assert document["verdict"] == verdict
    assert set(document["memory"]["hbm"]["phases"]) == {
        "load",
        "init",
        "forward",
        "backward",
        "step",
        "save",
    }


def test_a_plan_on_fewer_gpus_is_there_with_where_it_runs():
    made = answer()
    document = json.loads(dumps(fit_document(replace(made, faster_on_fewer=on_fewer(made.best)), {})))
    jsonschema.validate(document, strict(DOCUMENTS["fit"]))
    told = document["faster_on_fewer"]
    assert (told["cluster"], told["gpu_count"]) == ("Test Box", 8)
    assert told["estimate"]["step_time_s"] == document["estimate"]["step_time_s"] / 2
    assert told["plan"]["dp_degree"] == 8
    assert not [note for note in document["notes"] if note.startswith("faster_on_fewer:")]


def test_the_other_documents_match_their_schemas():
    made = answer()
    jsonschema.validate(model_document(made.best.workload.model), strict(DOCUMENTS["model"]))
    jsonschema.validate(limits_document(made), strict(DOCUMENTS["limits"]))
    jsonschema.validate(article.as_json(), strict(DOCUMENTS["article"]))


def test_the_same_answer_is_the_same_text():
    assert dumps(fit_document(answer(), {})) == dumps(fit_document(answer(), {}))


def test_what_is_unknown_is_null_with_a_reason():
    made = answer()
    best = replace(made.best, step_time=math.nan, limits=None, unknown=("gpu.peak_flops_per_s",))
    document = fit_document(replace(made, best=best), {})
    assert document["estimate"]["step_time_s"] is None
    assert document["limits"]["training_time_s"] is None
    notes = document["notes"]
    assert "estimate.step_time_s: needs gpu.peak_flops_per_s" in notes
    assert any(note.startswith("limits.training_time_s: ") for note in notes)


def test_gpus_of_the_plan_and_of_the_cluster_are_told_apart():
    for document in (fit_document(answer(gpus_there=32), {}), limits_document(answer(gpus_there=32))):
        problem = document["problem"]
        assert (problem["gpu_count"], problem["cluster_gpu_count"]) == (16, 32)


def test_every_tier_says_what_it_surely_lacks():
    memory = fit_document(answer("does_not_fit"), {})["memory"]
    assert memory["hbm"]["short_bytes"] == 28e9
    assert memory["dram"]["short_bytes"] == 0
    assert fit_document(answer("tight"), {})["memory"]["hbm"]["short_bytes"] == 0


def test_nulls_are_all_explained():
    document = fit_document(answer(), {})
    paths = [note.partition(":")[0] for note in document["notes"]]

    def nulls(part, path):
        if part is None:
            yield path
        for key, value in part.items() if isinstance(part, dict) else ():
            yield from nulls(value, f"{path}.{key}" if path else key)

    for path in nulls(document, ""):
        assert path in paths


def test_rates_are_those_of_the_estimate():
    written = fit_document(answer(), {})["estimate"]
    assert written["step_time_low_s"] == pytest.approx(18)
    assert written["step_time_high_s"] == pytest.approx(25)
    assert written["tokens_per_s"] == pytest.approx(16 * 2 * 4 * 4096 / 20)
    assert written["model_flops_per_s_per_gpu"] == pytest.approx(2.5e16 / 20 / 16)


def test_the_cost_is_that_of_the_price_with_its_source():
    made = answer()
    cluster = replace(made.best.cluster, price=Price(45.0, "a contract", "2026-01-01"))
    best = replace(made.best, step_cost=0.5, cluster=cluster)
    document = json.loads(dumps(fit_document(replace(made, best=best), {})))
    jsonschema.validate(document, strict(DOCUMENTS["fit"]))
    assert document["cost"] == {
        "step_usd": 0.5,
        "million_tokens_usd": pytest.approx(0.5 / 0.524288),
        "node_hour_usd": 45.0,
        "price_source": "a contract",
        "price_date": "2026-01-01",
        "gpu_time_per_million_tokens_s": pytest.approx(16 * 20 / 0.524288),
    }


def test_without_a_price_the_cost_is_null_and_gpu_time_stands_in():
    document = fit_document(answer(), {})
    assert document["cost"]["step_usd"] is None
    assert document["cost"]["gpu_time_per_million_tokens_s"] == pytest.approx(16 * 20 / 0.524288)
    said = "no price stated; gpu_time_per_million_tokens_s stands in for it"
    assert f"cost.million_tokens_usd: {said}" in document["notes"]


def test_the_problem_says_which_parameters_work_and_which_are_trained():
    made = answer()
    workload = load_workload("mixtral-8x7b", {"sequence_length": 4096})
    problem = fit_document(replace(made, problem=replace(made.problem, workload=workload)), {})["problem"]
    assert problem["params"] == problem["trainable_params"] == workload.model.params
    assert problem["active_params"] == workload.model.active_params < workload.model.params


def test_the_problem_names_the_other_models_of_the_job():
    made = answer()
    others = ["reference=llama-3.1-8b", "critic=gpt2"]
    workload = load_workload("llama-3.1-8b", {"sequence_length": 1024}, companions=others)
    document = fit_document(replace(made, problem=replace(made.problem, workload=workload)), {})
    jsonschema.validate(document, strict(DOCUMENTS["fit"]))
    reference, critic = document["problem"]["companions"]
    assert (reference["role"], reference["model"]) == ("reference", "llama-3.1-8b")
    assert (reference["params"], reference["trainable_params"]) == (workload.model.params, 0)
    assert critic["params"] == critic["trainable_params"] == workload.companions[1].model.params
    assert fit_document(made, {})["problem"]["companions"] == []


def test_a_line_says_its_formula_with_numbers_and_its_source():
    lines = fit_document(answer(), {})["memory"]["hbm"]["phases"]["forward"]["lines"]
    (line,) = lines
    assert line["formula"] == ("layer_bytes = param_bytes_per_param * layer_params = 2.0 * 100000000.0")
    assert line["knob"] == "stage3_max_live_parameters"
    assert line["source"]


def test_counts_of_a_plan_are_whole_numbers():
    plan = fit_document(answer(), {})["plan"]
    assert plan["dp_degree"] == 16
    assert isinstance(plan["dp_degree"], int)
    assert plan["activation_checkpointing"] == "full"
    assert plan["placement"]["optimizer"] == {"dram": 0.75, "hbm": 0.25}
    assert plan["placement"]["grads"] == {"hbm": 1.0}
