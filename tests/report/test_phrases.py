"""Phrases that several texts share."""

from dataclasses import replace

import pytest
from report.answers import answer

from ziplan.plan import Placement, Plan
from ziplan.report.lines import GLUE
from ziplan.report.phrases import binding_words, fewer_words, placement_words, spread
from ziplan.runtimes.runtime import Demand, Segment
from ziplan.solve.binding import binding, longest_wait
from ziplan.solve.problem import Binding


@pytest.mark.parametrize(
    ("low", "high", "unit", "said"),
    [
        (116.0, 329.4, "s", "116 to 329 s"),
        (1.0, 329.4, "s", "1 to 329 s"),
        (2876.0, 12096.0, "s", "47.9 to 202 min"),
        (50.0, 10800.0, "s", "50 s to 3 h"),
        (50e9, 60e9, "B", "50 to 60 GB"),
        (900e9, 1.2e12, "B", "900 GB to 1.2 TB"),
        (5e9, 5e9, "B", "5 GB"),
    ],
)
def test_a_range_has_its_unit_once_where_both_ends_share_it(low, high, unit, said):
    assert spread(low, high, unit).replace(GLUE, " ") == said


@pytest.mark.parametrize(
    ("where", "what", "said"),
    [
        ("nvme.swap_read", "parameter read", "parameter read (nvme reads)"),
        ("dram.write_alone_of_others", "gradient copies", "gradient copies (dram writes)"),
        ("gpu_matrix", "compute", "compute"),
        ("gather", "gather", "gather"),
        ("", "unknown without x", "unknown without x"),
    ],
)
def test_what_binds_is_named_in_words_alone(where, what, said):
    assert binding_words(Binding("time", where, what)) == said
    assert binding_words(Binding("capacity", "dram", "init")) == "capacity of dram in init"


def test_the_longest_wait_names_the_direction_that_moves_most():
    """A term that goes both ways is not named for the way that happens to come first."""
    down, up = Demand("gradient exchange", "dram.write", 1e9), Demand("gradient exchange", "dram.read", 1e9)
    beside = Demand("compute", "gpu_matrix", 1.0)
    segments = (Segment("micro-step", 4.0, ((beside, up), (up, down))), Segment("boundary", 1.0, ((down,),)))
    best = replace(answer().best, segments=segments, terms={"gradient exchange": 2.0, "compute": 1.0})
    assert longest_wait(best) == ("dram.write", ("gradient exchange",))


@pytest.mark.parametrize(
    ("compute", "said"),
    [(1.5, "gradient reduce"), (2.5, "gradient reduce and gather"), (4.0, "compute")],
)
def test_what_binds_is_the_resource_that_is_waited_for_longest_not_its_longest_term(compute, said):
    """Two terms of one network, neither as long as the products, may be longer than those together."""
    rates = {"compute": "gpu_matrix", "gather": "gather", "gradient reduce": "gather"}
    chain = tuple(Demand(term, resource, 1.0) for term, resource in rates.items())
    times = {"compute": compute, "gather": 1.4, "gradient reduce": 2.0}
    best = replace(answer().best, segments=(Segment("micro-step", 1.0, (chain,)),), terms=times)
    assert binding(best).what == said


@pytest.mark.parametrize(
    ("host", "said"), [(0.6, "hbm 40% + dram 60%"), (0.0014, "hbm over 99% + dram under 1%")]
)
def test_a_small_part_is_not_called_none(host, said):
    both = {"hbm": 1 - host, "dram": host}
    plan = Plan(dp_degree=8.0, placement=Placement({"hbm": 1.0}, both, both, {"hbm": 1.0}))
    assert said in placement_words(plan)


@pytest.mark.parametrize(("times", "said"), [(1.23, "1.2"), (110.4, "110"), (2345.0, "2,345")])
def test_how_many_times_faster_has_no_exponent(times, said):
    best = answer().best
    assert f", {said} times as many" in fewer_words(best, replace(best, step_time=times * best.step_time))
