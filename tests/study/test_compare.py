"""A comparison's options are single fits, its sums add up, and what it advises follows from its numbers."""

import json
import re
from dataclasses import replace

import jsonschema
import pytest
from cli.runs import ziplan
from report.strictness import strict

from ziplan.cli.compare import changes_of, token_budget
from ziplan.cli.inputs import Request, answer_to, problem_of
from ziplan.errors import BadInput
from ziplan.report.comparison_text import advice
from ziplan.report.deciding_schemas import COMPARE
from ziplan.report.json import plan_object
from ziplan.solve import solve
from ziplan.solve.relief import MORE_MEMORY, reliefs
from ziplan.study.compare import Asked, compared

COMMAND = ("compare", "llama-3.1-70b", "dgx-a100-80g", "2x dgx-h100", "--sequence-length", "4096")
BATCH = ("--global-batch-size", "64")
WITH = ("--with", "tiers.dram.capacity=512 GiB", "--with", "nodes=3")
PRICED = "machine: {}\nprice: {{per_node_hour: {} USD, source: a bill, date: 2026-01-01}}\n"


def told(capsys, *arguments):
    ran = ziplan(capsys, *arguments, "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    jsonschema.validate(document, strict(COMPARE))
    return document


def test_every_option_is_what_a_single_fit_answers(capsys):
    document = told(capsys, *COMMAND, *BATCH, *WITH, "--tokens", "100e9")
    training = {"sequence_length": 4096, "global_batch_size": 64}
    asked = [("dgx-a100-80g", ()), ("2x dgx-h100", ()), ("dgx-a100-80g", ("tiers.dram.capacity=512 GiB",))]
    for option, (cluster, settings) in zip(document["options"], asked, strict=False):
        answer = answer_to(Request("llama-3.1-70b", cluster, settings=settings, training=training))
        best = answer.best
        assert option["plan"] == plan_object(best.plan)
        assert option["step_time_s"] == best.step_time
        time = 100e9 / best.tokens_per_s
        assert option["budget"]["time_s"] == pytest.approx(time)
        assert option["budget"]["gpu_time_s"] == pytest.approx(time * best.gpus)
        assert option["without_offload"]["gpu_count"] == answer.baseline.gpus
        plain = option["without_offload"]["budget"]
        assert plain["time_s"] == pytest.approx(100e9 * answer.baseline.step_time / best.tokens_per_step)
        assert plain["gpu_time_s"] == pytest.approx(plain["time_s"] * answer.baseline.step_gpus)
    refused = document["options"][3]
    assert (refused["verdict"], refused["budget"]["time_s"]) == ("refused", None)
    assert "cannot be split over 24 ranks" in refused["refused"][0]


def test_the_fastest_and_the_cheapest_are(capsys):
    document = told(capsys, *COMMAND, *BATCH, *WITH)
    usable = [(place, o["budget"]) for place, o in enumerate(document["options"]) if o["budget"]["time_s"]]
    assert document["fastest"] == min(usable, key=lambda pair: pair[1]["time_s"])[0]
    assert document["cheapest"] == min(usable, key=lambda pair: pair[1]["gpu_time_s"])[0]
    assert document["cheapest_by"] == "gpu_time_s"


def test_prices_decide_where_every_option_has_one(capsys, tmp_path):
    files = []
    for machine, price in (("dgx-a100-80g", 10), ("dgx-h100", 1000)):
        files.append(tmp_path / f"{machine}.yaml")
        files[-1].write_text(PRICED.format(machine, price))
    arguments = ("compare", "llama-3.1-8b", *files, "--sequence-length", "4096", *BATCH)
    document = told(capsys, *arguments)
    assert (document["cheapest_by"], document["fastest"], document["cheapest"]) == ("usd", 1, 0)
    for option, price in zip(document["options"], (10, 1000), strict=True):
        assert option["budget"]["usd"] == pytest.approx(price / 3600 * option["budget"]["time_s"])
        assert option["price"] == {"node_hour_usd": price, "source": "a bill", "date": "2026-01-01"}
    text = ziplan(capsys, *arguments).out
    assert "a bill, 2026-01-01" in text
    assert "fewest dollars: A" in text


def test_what_frees_is_solved_again_and_ranked():
    training = {"sequence_length": 4096, "global_batch_size": 64}
    request = Request("llama-3.1-70b", "dgx-a100-80g", training=training)
    problem = problem_of(
        request._replace(settings=("tiers.dram.capacity=1.5 TiB", "tiers.nvme.drive_count=2"))
    )
    best = solve(problem, 0).best
    found = {each.path: each for each in reliefs(problem, best)}
    assert [each.saved for each in found.values()] == sorted((e.saved for e in found.values()), reverse=True)
    assert set(found) >= {"tiers.nvme.drive_count", "tiers.dram.capacity", "nodes"}
    node = problem.cluster.node
    dram = node.tiers["dram"].model_copy(update={"capacity": node.tiers["dram"].capacity + MORE_MEMORY})
    node = node.model_copy(update={"tiers": {**node.tiers, "dram": dram}})
    more = replace(problem, cluster=replace(problem.cluster, node=node))
    more_nodes = replace(problem, cluster=replace(problem.cluster, nodes=2))
    drive = problem_of(request._replace(settings=("tiers.dram.capacity=1.5 TiB", "tiers.nvme.drive_count=3")))
    for path, changed in (
        ("tiers.dram.capacity", more),
        ("nodes", more_nodes),
        ("tiers.nvme.drive_count", drive),
    ):
        again = solve(changed, 0).best
        saved = best.step_time - again.time_per_token * best.tokens_per_step
        assert found[path].saved == pytest.approx(saved, abs=1e-9 * best.step_time), path
        assert found[path].share == pytest.approx(saved / best.step_time, abs=1e-9)
    assert found["tiers.nvme.drive_count"].after == "3"


def test_nothing_frees_what_does_not_fit():
    problem = problem_of(Request("llama-3.1-70b", "rtx-4090-desktop", training={"sequence_length": 4096}))
    assert reliefs(problem, solve(problem, 0).best) == ()


@pytest.mark.parametrize(
    ("model", "cluster", "length", "said"),
    [
        ("gpt2-xl", "dgx-a100-80g", 1024, "do not offload"),
        ("llama-3.1-70b", "rtx-4090-desktop", 4096, r"does not fit here; plain stage 3 needs \d+ GPUs"),
        ("llama-3.1-70b", "dgx-a100-80g", 4096, r"plain stage 3 needs 19 GPUs, and on 24 GPUs takes"),
    ],
)
def test_to_buy_or_to_offload(model, cluster, length, said, capsys):
    ran = ziplan(capsys, "compare", model, cluster, "--sequence-length", length, "--json")
    said_of_it = json.loads(ran.out)["options"][0]["advice"]
    assert re.search(said, said_of_it)


def test_what_is_all_in_gpu_memory_and_tight_is_not_called_offloaded():
    request = Request("gpt2-xl", "dgx-a100-80g", training={"sequence_length": 1024})
    found = compared([Asked("it", {}, problem_of(request))], 1e9)
    (option,) = found.options
    assert not option.offloads
    assert advice(option, found).startswith("do not offload")
    tight = option._replace(outcome=option.outcome._replace(verdict="tight"))
    assert advice(tight, found).startswith("nothing is offloaded, and it is not sure that it fits")


def test_the_advice_says_what_its_numbers_say(capsys):
    for option in told(capsys, *COMMAND, *BATCH)["options"]:
        here, plain = option["budget"], option["without_offload"]["budget"]
        ratio = plain["gpu_time_s"] / here["gpu_time_s"]
        winner = "buying the GPUs costs" if ratio < 0.98 else "offloading costs" if ratio > 1.02 else "same"
        assert winner in option["advice"]


def test_plain_stage_3_pays_for_nodes_like_everybody(capsys, tmp_path):
    """A plan on one GPU of eight pays for the whole node too."""
    file = tmp_path / "priced.yaml"
    file.write_text(PRICED.format("dgx-a100-80g", 20))
    arguments = ("llama-3.1-8b", file, "--sequence-length", "2048", "--objective", "gpus")
    (option,) = told(capsys, "compare", *arguments)["options"]
    here, plain = option["budget"], option["without_offload"]["budget"]
    assert option["gpu_count"] == 1
    assert option["without_offload"]["timed_gpu_count"] == 8
    assert here["usd"] == pytest.approx(20 / 3600 * here["time_s"])
    assert plain["usd"] == pytest.approx(20 / 3600 * plain["time_s"])


@pytest.mark.parametrize(("price", "said"), [(0, "both cost the same for the tokens"), (20, "costs")])
def test_what_is_free_costs_the_same(capsys, tmp_path, price, said):
    file = tmp_path / "priced.yaml"
    file.write_text(PRICED.format("dgx-a100-80g", price))
    (option,) = told(capsys, "compare", "llama-3.1-70b", file, "--sequence-length", "1024")["options"]
    assert said in option["advice"]
    assert ("less" in option["advice"]) is bool(price)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_text_keeps_its_width(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    ran = ziplan(capsys, *COMMAND, "rtx-4090-desktop", *BATCH, *WITH)
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= width
    for letter in "ABCDE":
        assert f"\n{letter}  " in ran.out


@pytest.mark.parametrize(
    ("text", "tokens"), [("100e9", 100e9), ("100 Gtoken", 100e9), ("2.5e6", 2.5e6), ("1,000", 1000.0)]
)
def test_a_budget_of_tokens(text, tokens):
    assert token_budget(text) == tokens


@pytest.mark.parametrize("text", ["", "many", "0", "-1", "100 GB", "1e400"])
def test_no_budget(text):
    with pytest.raises(BadInput, match="--tokens"):
        token_budget(text)


def test_changes_of_one_option():
    assert changes_of("a.b=1 TiB; nodes=2") == {"a.b": "1 TiB", "nodes": "2"}
    for text in ("", "nodes", "nodes=", "=2", "nodes=2;"):
        with pytest.raises(BadInput, match="--with"):
            changes_of(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--with", "tiers.drm.capacity=1 TB"), "did you mean `dram`?"),
        (("--with", "nodes=2; nodes=3"), "says nodes twice"),
        (("--with", "training.sequence_lenth=1"), "sequence_length"),
        (("no-such-machine",), "no machine is called 'no-such-machine'"),
        (("--global-batch-size", "63", "--with", "nodes=3"), "cannot be split"),
    ],
)
def test_a_wrong_question_exits_2(arguments, said, capsys):
    ran = ziplan(capsys, "compare", "llama-3.1-8b", "dgx-a100-80g", "--sequence-length", "512", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
