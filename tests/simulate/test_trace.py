"""What is told of a played step: waits by cause, and the trace that Perfetto opens."""

import itertools
import json

import pytest
from runtimes.toy import cluster, plan, toy, workload
from simulate.two import machine, work
from simulate.two import plan as small

from ziplan.report.simulation_trace import chrome_trace
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.schedule import Work
from ziplan.simulate.engine import Pool, Task, play
from ziplan.simulate.step import simulate
from ziplan.simulate.trace import Watched, tally


def watched(tasks, works, rates, links, pools=()):
    played = play(tasks, rates, [Pool(name, count) for name, count in pools])
    return Watched(
        works, tasks, range(len(tasks)), played, links, rates, [n for n, _ in pools], played.levels, "hbm", 1
    )


def test_a_wait_is_told_piece_by_piece_along_what_was_waited_for():
    """Compute waits for a gather (1 s), which waited for a copy (2 s, the first of them beside compute)."""
    works = [
        Work("a", "compute", "gpu", 1.0),
        Work("b", "copy", "dram.read", 2.0),
        Work("b", "gather", "gather", 1.0, (1,)),
        Work("b", "compute", "gpu", 1.0, (0, 2)),
    ]
    uses = [((0, 1.0),), ((1, 1.0),), ((2, 1.0),), ((0, 1.0),)]
    tasks = [Task(w.module, w.amount, use, w.after) for w, use in zip(works, uses, strict=True)]
    sums = tally(watched(tasks, works, [1.0, 1.0, 1.0], ["gpu", "host", "fabric"]))
    assert sums.stalls == {("b", "host"): 1.0, ("b", "fabric"): 1.0}
    assert (sums.span, sums.computing, sums.stalled) == (4.0, 2.0, 2.0)


def test_a_wait_for_buffers_is_told_as_such():
    works = [
        Work("write", "write", "nvme.write", 3.0, (), (("buffers", 1.0),), (("buffers", 1.0),)),
        Work("a", "compute", "gpu", 1.0, (), (("buffers", 1.0),)),
    ]
    tasks = [
        Task("write", 3.0, ((1, 1.0),), (), ((0, 1.0),), ((0, 1.0),)),
        Task("a", 1.0, ((0, 1.0),), (), ((0, 1.0),)),
    ]
    sums = tally(watched(tasks, works, [1.0, 1.0], ["gpu", "nvme"], [("buffers", 1.0)]))
    assert sums.stalls == {("a", "buffers"): 3.0}


def test_the_trace_has_a_row_for_each_resource_and_no_bar_over_another():
    simulation = simulate(
        cluster(gpus=4),
        workload(toy(3)),
        RUNTIMES["deepspeed"],
        plan("dram", "nvme", dp_degree=4.0, prefetch_depth=1.0, accumulation_steps=3.0, sub_group_params=1e6),
    )
    trace = json.loads(json.dumps(chrome_trace(simulation), allow_nan=False))
    events = trace["traceEvents"]
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    on_gpu = {"GPU, products with matrices", "GPU, attention", "hbm.read"}
    assert {"stages", "Python", *on_gpu, "gather and reduce between ranks", "dram.read", "dram.write"} <= set(
        rows.values()
    )
    bars = [event for event in events if event["ph"] == "X"]
    assert {bar["tid"] for bar in bars} == set(rows)
    for row in rows:
        spans = sorted((bar["ts"], bar["ts"] + bar["dur"]) for bar in bars if bar["tid"] == row)
        for (_, end), (begin, _) in itertools.pairwise(spans):
            assert end <= begin + 1e-3
    stages = [bar["name"] for bar in bars if rows[bar["tid"]] == "stages"]
    assert stages == ["micro-step (stands for 2)", "last micro-step", "optimizer step"]
    computed = [bar for bar in bars if rows[bar["tid"]] in on_gpu and "sub-group" not in bar["name"]]
    first = next(bar for bar in bars if bar["name"] == stages[0])
    stands_for_2 = [bar for bar in computed if bar["ts"] < first["ts"] + first["dur"]]
    whole = sum(bar["dur"] for bar in (*computed, *stands_for_2))
    assert whole == pytest.approx(simulation.tally.computing * 1e6, rel=1e-6)


def test_the_trace_shows_how_full_buffers_are():
    simulation = simulate(machine(), work(), RUNTIMES["ideal"], small("nvme", "dram"))
    curves = [e for e in chrome_trace(simulation)["traceEvents"] if e["ph"] == "C"]
    assert {curve["name"] for curve in curves} == {"layer buffers", "optimizer buffers", "hbm"}
    assert max(c["args"]["in use"] for c in curves if c["name"] == "layer buffers") == 2.0
