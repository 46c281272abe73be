"""Charts draw what the numbers say, in colours that follow the reader, small and the same each time."""

import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from cli.runs import ziplan
from report.dossiers import dossier

from ziplan.errors import BadInput
from ziplan.report.charts import CHARTS, canvas
from ziplan.report.charts.canvas import inline, png, require, svg
from ziplan.report.charts.chart import NARROW, WIDE
from ziplan.report.charts.colours import COLOURS, GROUNDS_OF
from ziplan.report.charts.memory import parts
from ziplan.report.charts.timeline import GPU_ROW, rows_of, shares

WIDTHS = (WIDE, NARROW)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CHARTS)
def test_every_colour_is_the_readers(name, width):
    drawn = inline("a-", CHARTS[name], dossier("offloaded"), width)
    assert not re.findall(r"#[0-9a-f]{6}\b", drawn)
    assert set(re.findall(r"var\(--([a-z-]+)\)", drawn)) <= {each.replace("_", "-") for each in COLOURS}
    assert "font-family:" not in drawn
    assert "://" not in drawn.replace("http://www.w3.org/", "")


@pytest.mark.parametrize("name", CHARTS)
def test_identifiers_are_used_unique_and_their_own(name):
    root = ET.fromstring(inline("mine-", CHARTS[name], dossier("offloaded"), WIDE))
    own = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(own) == len(set(own))
    assert all(each.startswith("mine-") for each in own)
    text = ET.tostring(root, encoding="unicode")
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', text)) == set(own)


@pytest.mark.parametrize("name", CHARTS)
def test_a_drawing_says_what_it_shows_and_is_the_same_again(name):
    chart, told = CHARTS[name], dossier("offloaded")
    drawn = inline("a-", chart, told, WIDE)
    root = ET.fromstring(drawn)
    assert root.get("role") == "img"
    assert chart.says(told)
    assert chart.says(told) in root.get("aria-label")
    inline("other-", CHARTS["terms"], told, NARROW)
    assert inline("a-", chart, told, WIDE) == drawn


def test_bars_of_memory_add_up_to_the_need():
    for kind in ("offloaded", "too large", "plain"):
        estimate = dossier(kind).estimate
        for tier, memory in estimate.memory.items():
            drawn = parts(estimate, tier)
            for place, (_, high) in enumerate(memory.phases.values()):
                assert sum(part.amounts[place] for part in drawn) == pytest.approx(high, rel=1e-9)


def test_the_gpus_row_works_as_long_as_the_simulator_says():
    for stage in dossier("offloaded").played.simulation.stages:
        stretches = rows_of(stage).get(GPU_ROW, [])
        assert all(a[1] < b[0] for a, b in itertools.pairwise(stretches))
        worked = sum(end - begin for begin, end in stretches) * stage.repeats / stage.rounds
        assert worked == pytest.approx(stage.tally.computing, rel=1e-9)


def test_shares_of_columns_are_those_of_the_stretches():
    stretches = [(0.5, 1.0), (1.25, 1.5), (3.0, 10.0)]
    found = shares(stretches, 10.0, 10)
    assert found == pytest.approx([0.5, 0.25, 0, 1, 1, 1, 1, 1, 1, 1])
    assert shares([(0.0, 0.1)], 0.3, 3) == pytest.approx([1, 0, 0], abs=1e-12)


def test_every_text_can_be_read_on_its_ground():
    for text, grounds in GROUNDS_OF.items():
        for ground, scheme in itertools.product(grounds, ("light", "dark")):
            pair = (getattr(COLOURS[name], scheme) for name in (text, ground))
            assert contrast(*pair) >= 4.5, (text, ground, scheme)


def contrast(one, other):
    """WCAG 2.2's contrast ratio of two colours."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_daylight_colours_stand_for_one_part_each():
    assert len({each.light for each in COLOURS.values()}) == len(COLOURS)


def test_pictures_are_what_their_names_say():
    told = dossier("plain")
    assert png([CHARTS["terms"]], told, WIDE).startswith(b"\x89PNG\r\n\x1a\n")
    drawn = svg(list(CHARTS.values()), told, WIDE)
    assert ET.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in drawn


def test_what_cannot_be_drawn_says_why():
    assert "several models" in CHARTS["timeline"].lacks(dossier("several"))
    assert not CHARTS["memory"].lacks(dossier("unknown"))
    for name in ("timeline", "terms", "roofline", "margins"):
        assert "without gpu.peak_flops_per_s.fp32" in CHARTS[name].lacks(dossier("unknown"))


def test_a_tier_that_nothing_needs_has_no_axes():
    drawn = inline("a-", CHARTS["memory"], dossier("plain"), WIDE)
    assert "unused" in drawn
    assert drawn.count(">forward<") == 2


def test_a_missing_library_is_told_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setattr(canvas, "find_spec", lambda name: None if name == "matplotlib" else object())
    with pytest.raises(BadInput) as caught:
        require()
    (problem,) = caught.value.problems
    assert "matplotlib" in problem.message
    assert "jinja2" not in problem.message
    assert problem.help == "pip install 'ziplan[report]'"


FIT = ("gpt2-xl", "dgx-a100-80g", "--sequence-length", "1024")


def test_plots_are_written_without_a_page(capsys, tmp_path):
    one, every = tmp_path / "memory.svg", tmp_path / "all.PNG"
    ran = ziplan(capsys, "report", *FIT, "--plot", f"memory={one}", "--plot", str(every))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert "Memory by tier and phase" in one.read_text()
    assert every.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("memry=a.svg", "memory"),
        ("memory", ".svg or .png"),
        ("memory=", ".svg or .png"),
        ("=a.svg", "no chart is called ''"),
        ("a.jpeg", ".svg or .png"),
        ("margins=/proc/none/a.svg", "cannot be written"),
    ],
)
def test_a_plot_that_cannot_be_written_is_refused(asked, said, capsys):
    ran = ziplan(capsys, "report", *FIT, "--plot", asked)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
