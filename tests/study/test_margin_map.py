"""Every cell of the map is a fit of its own, and the margin collapses from both ends."""

import json
from functools import partial
from itertools import pairwise

import jsonschema
import pytest
from cli.runs import ziplan
from report.strictness import strict

from ziplan.cli.inputs import Request, answer_to
from ziplan.cli.varied import posed
from ziplan.errors import BadInput
from ziplan.report.margin_map import Cell, sign_of
from ziplan.report.schemas import DOCUMENTS
from ziplan.study.margin_map import margin_map

COMMAND = ("limits", "llama-3.1-70b", "2x dgx-a100-80g", "--sequence-length", "4096", "--map")
REQUEST = Request("llama-3.1-70b", "2x dgx-a100-80g", training={"sequence_length": 4096})


@pytest.fixture(scope="module")
def found():
    answer = answer_to(REQUEST)
    return margin_map(partial(posed, REQUEST), answer.problem, answer.best)


def test_axes_reach_from_one_gpu_to_twice_the_cluster_and_around_a_sequence(found):
    assert found.dp_degrees == (1, 2, 4, 8, 16, 32)
    assert found.tokens == (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
    assert {len(row) for row in found.cells} == {len(found.dp_degrees)}


@pytest.mark.parametrize(("tokens", "ranks"), [(1024, 4), (4096, 8), (8192, 32)])
def test_a_cell_is_what_a_single_fit_answers(found, tokens, ranks):
    micro = max(1, tokens // 4096)
    training = {
        "sequence_length": tokens // micro,
        "micro_batch_size": micro,
        "global_batch_size": micro * ranks,
    }
    settings = (f"nodes={max(1, ranks // 8)}", f"gpus_per_node={min(8, ranks)}")
    best = answer_to(REQUEST._replace(training=training, settings=settings)).best
    cell = found.cells[found.tokens.index(tokens)][found.dp_degrees.index(ranks)]
    assert cell == Cell(best.verdict, best.tiers[found.tier].hiding_margin)


def test_the_margin_collapses_from_both_ends(found):
    columns = list(zip(*found.cells, strict=True))
    for line in (*found.cells, *columns):
        margins = [cell.margin for cell in line if cell.fits]
        # A plan that recomputes has 8 FLOPs per parameter and token in place of 6.
        assert all(later >= 0.75 * earlier for earlier, later in pairwise(margins))
    row = found.cells[found.tokens.index(1024)]
    assert row[-1].margin / row[-3].margin == pytest.approx(4, rel=0.34)


def test_the_plan_that_was_asked_about_stands_in_the_map(found):
    best = answer_to(REQUEST).best
    row, column = found.here
    assert found.dp_degrees[column] == best.plan.dp_degree
    assert found.tokens[row] == best.plan.micro_batch_size * 4096


@pytest.mark.parametrize(
    ("cell", "sign"),
    [
        (Cell("fits", 4.0), "#"),
        (Cell("tight", 1.0), "+"),
        (Cell("fits", 0.99), "-"),
        (Cell("fits", 0.1), "."),
        (Cell("does_not_fit", 9.0), "x"),
        (Cell("refused"), "!"),
        (Cell("unknown"), "?"),
    ],
)
def test_characters(cell, sign):
    assert sign_of(cell)[0] == sign


@pytest.mark.parametrize("width", [60, 100])
def test_the_map_on_a_terminal_and_as_json_are_the_same(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    text = ziplan(capsys, *COMMAND).out
    assert max(map(len, text.splitlines())) <= width
    ran = ziplan(capsys, *COMMAND, "--json")
    document = json.loads(ran.out)
    jsonschema.validate(document, strict(DOCUMENTS["limits"]))
    for tokens, row in zip(document["map"]["tokens_per_rank_tokens"], document["map"]["cells"], strict=True):
        (drawn,) = (line for line in text.splitlines() if line.startswith(f"{tokens:>7,} "))
        signs = [sign_of(Cell(c["verdict"], c["hiding_margin"] or float("nan")))[0] for c in row]
        assert [each.strip("[]") for each in drawn.split()[1:]] == signs
    plain = json.loads(ziplan(capsys, *COMMAND[:-1], "--json").out)
    assert plain == {key: value for key, value in document.items() if key != "map"}


@pytest.mark.parametrize(
    ("runtime", "tier", "gigabytes"),
    [("fsdp", "dram", 2147), ("megatron", "hbm", 8 * 85.1), ("ideal", "nvme", 30720)],
)
def test_ceiling_and_map_are_of_a_tier_that_the_runtime_can_fill(runtime, tier, gigabytes):
    """FSDP2 offloads to the host and no further; Megatron's own optimizer nowhere."""
    asked = Request("llama-2-7b", "dgx-a100-80g", runtime, training={"sequence_length": 2048})
    answer = answer_to(asked)
    ceilings = answer.best.limits
    assert ceilings.capacity_tier == tier
    assert ceilings.max_params_by_capacity == pytest.approx(gigabytes * 1e9 / 16, rel=0.06)
    if tier == "hbm":
        with pytest.raises(BadInput, match="keeps everything on the GPU"):
            margin_map(partial(posed, asked), answer.problem, answer.best)
    else:
        assert margin_map(partial(posed, asked), answer.problem, answer.best).tier == tier
