"""A run: each benchmark in a process of its own, which may crash, hang, or run out of its time."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from bench.records import cpu_only, measured, topology

from ziplan.bench import names
from ziplan.bench.benchmark import Benchmark, Cost, Options, Task, benchmarks
from ziplan.bench.child import line_of, result_of, results, task_document, task_of
from ziplan.bench.host import dram, optimizer
from ziplan.bench.measurement import CannotMeasure, Measured, Noted, Waived
from ziplan.bench.process import watched
from ziplan.bench.record import Record
from ziplan.bench.runner import Planned, Run, chosen, planned, together
from ziplan.errors import BadInput
from ziplan.hardware.rates import ADAM_BYTES

PLANTED = """
import os, subprocess, sys, time
from ziplan.bench.benchmark import Benchmark, Cost
from ziplan.bench.measurement import CannotMeasure, Waived, summary

def one(name, value=1.0):
    return summary(name, "B/s", [value], "planted")

def runs(task):
    print("noise of a library")
    os.write(1, b"more of it\\n")
    yield one("a.rate", 3.0)
    yield one("b.rate", 4.0)

def crashes(task):
    yield one("a.rate")
    os.kill(os.getpid(), 11)
    yield one("b.rate")

def hangs(task):
    yield one("a.rate")
    time.sleep(600)

def gives_up(task):
    yield one("a.rate")
    raise CannotMeasure("the card is gone")

def breaks(task):
    yield one("a.rate")
    raise ValueError("no such thing")

def says_last_words(task):
    print("fatal: bad firmware", file=sys.stderr)
    sys.stderr.flush()
    os._exit(7)
    yield

def leaves_a_process(task):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield one("pid", float(child.pid))
    time.sleep(600)

def tells_its_task(task):
    yield one("earlier", task.earlier["dram.copy_bandwidth"].median)
    yield one("left", task.bytes_left)
    yield one("folders", len(task.topology.folders))

def tells_its_number(task):
    yield one("pid", float(os.getpid()))
    time.sleep(600)

FUNCTIONS = (runs, crashes, hangs, gives_up, breaks, says_last_words)
FUNCTIONS += (leaves_a_process, tells_its_task, tells_its_number)
BENCHMARKS = tuple(Benchmark(each.__name__, "planted", lambda task: Cost(1.0), each) for each in FUNCTIONS)
"""
SITE = """
import importlib.util, sys
if "ziplan.bench.child" in " ".join(sys.orig_argv):
    from ziplan.bench.benchmark import REGISTRY
    REGISTRY["planted_benchmarks"] = "planted"
"""


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """Makes children know the planted benchmarks; answers with one by its name."""
    (tmp_path / "planted_benchmarks.py").write_text(PLANTED)
    (tmp_path / "sitecustomize.py").write_text(SITE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return lambda name: Benchmark(name, "planted", lambda task: Cost(1.0), lambda task: iter(()))


def watch(benchmark, seconds=60.0, silence=60.0, task=None):
    task = replace(task or Task(topology()), seconds=seconds)
    return list(watched(benchmark, task, silence))


def test_results_come_as_they_were_whatever_libraries_say(plant):
    first, second = watch(plant("runs"))
    assert (first.name, first.median, second.name) == ("a.rate", 3.0, "b.rate")


def test_a_child_knows_its_task(plant):
    record = cpu_only(drives=2)
    task = Task(record.topology, Options(), record.by_name(), bytes_left=5e9)
    found = {one.name: one.median for one in watch(plant("tells_its_task"), task=task)}
    assert found == {"earlier": record.by_name()[names.DRAM_COPY].median, "left": 5e9, "folders": 2}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("crashes", "its process was ended by signal 11"),
        ("gives_up", "the card is gone"),
        ("breaks", "failed: ValueError: no such thing"),
    ],
)
def test_what_came_before_a_failure_is_kept_and_the_rest_waived(plant, name, why):
    kept, waived = watch(plant(name))
    assert kept.name == "a.rate"
    assert (waived.name, waived.reason) == (name, why)


def test_last_words_are_quoted(plant):
    (waived,) = watch(plant("says_last_words"))
    assert waived.reason == "its process ended with code 7: fatal: bad firmware"


def test_one_that_says_nothing_is_ended(plant):
    kept, waived = watch(plant("hangs"), silence=3.0)
    assert isinstance(kept, Measured)
    assert "gave no result" in waived.reason


def test_one_that_runs_over_is_ended_in_its_time(plant):
    begin = time.monotonic()
    *_, waived = watch(plant("hangs"), seconds=3.0)
    assert waived.reason == "the time budget was used up while it ran"
    assert time.monotonic() - begin < 30  # far from the 600 s that it would take


def test_what_it_started_ends_with_it(plant):
    first, _ = watch(plant("leaves_a_process"), silence=2.0)
    assert not alive(int(first.median))


def test_one_that_is_not_waited_for_ends_too(plant):
    found = watched(plant("leaves_a_process"), Task(topology()), 60.0)
    pid = int(next(found).median)
    assert alive(pid)
    found.close()
    assert not alive(pid)


def alive(pid):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return False
        except OSError:
            return False
        if deadline - time.monotonic() < 9.5:
            return True
        time.sleep(0.1)
    return True


def test_a_task_and_results_go_through_a_pipe_unchanged():
    record = cpu_only(drives=2)
    task = Task(record.topology, Options(True, ("/a",), 1e9), record.by_name(), 5.0, float("inf"))
    assert task_of(task_document(task)) == task
    for result in (*record.measured[:2], Waived(name="a", reason="b"), Noted(name="c", text="", method="d")):
        assert result_of(line_of(result)) == result


def planned_run(*parts, **more):
    """A run of benchmarks in this process: (name, seconds, bytes, results or an exception)."""
    plan = []
    for name, seconds, size, found in parts:

        def run(task, found=found):
            for result in found:
                if isinstance(result, Exception):
                    raise result
                yield result

        plan.append(Planned(Benchmark(name, "", lambda task: Cost(1.0), run), Cost(seconds, size)))
    return Run(Record(topology=topology()), Options(max_write=10e9), plan, **more)


@pytest.fixture
def here(monkeypatch):
    """Benchmarks run in this process; the tasks that they were given."""
    tasks = []

    def direct(benchmark, task, silence, tick):
        tasks.append(task)
        yield from results(benchmark, task)

    monkeypatch.setattr("ziplan.bench.runner.watched", direct)
    return tasks


def test_every_result_is_noted_as_it_comes(here):
    noted, told = [], []
    one, two = measured("a", "B/s", 1.0), measured("b", "B/s", 2.0)
    run = planned_run(("x", 1.0, 0.0, [one, two]), ("y", 1.0, 0.0, [CannotMeasure("gone")]))
    record = run.go(lambda r: noted.append((len(r.measured), len(r.waived), r.complete)), told.append)
    assert noted == [(1, 0, False), (2, 0, False), (2, 1, False), (2, 1, True)]
    assert record.complete
    assert [each.done for each in told] == [0.0, 0.0, 1.0]
    assert {each.whole for each in told} == {2.0}


def test_what_does_not_fit_the_budget_is_left_out_and_what_comes_after_and_fits_is_not(here):
    one = measured("a", "B/s", 1.0)
    run = planned_run(("long", 100.0, 0.0, [one]), ("short", 1.0, 0.0, [one]), budget=50.0)
    record = run.go(lambda r: None, lambda p: None)
    (waived,) = record.waived
    assert waived.name == "long"
    assert "time budget" in waived.reason
    assert len(here) == 1
    assert here[0].seconds < 50


def test_bytes_that_were_planned_are_no_longer_left(here):
    planned_run(("x", 1.0, 4e9, []), ("y", 1.0, 4e9, [])).go(lambda r: None, lambda p: None)
    assert [task.bytes_left for task in here] == [10e9, 6e9]


def test_later_benchmarks_know_what_earlier_ones_measured(here):
    planned_run(("x", 1.0, 0.0, [measured("a", "B/s", 1.0)]), ("y", 1.0, 0.0, [])).go(
        lambda r: None, lambda p: None
    )
    assert [set(task.earlier) for task in here] == [set(), {"a"}]


def test_several_runs_are_the_median_of_each_and_how_they_spread(here):
    values = iter([100.0, 110.0, 130.0])

    def run(task):
        yield measured("a", "B/s", next(values))

    plan = [Planned(Benchmark("x", "", lambda task: Cost(1.0), run), Cost(1.0))]
    record = Run(Record(topology=topology()), Options(), plan, repeat=3).go(lambda r: None, lambda p: None)
    (one,) = record.measured
    assert (one.median, one.minimum, one.maximum, one.n) == (110.0, 100.0, 130.0, 3)
    assert one.method.endswith("median of 3 runs")


def test_what_an_ended_run_had_not_come_to_is_waived(here):
    run = planned_run(("x", 1.0, 0.0, [measured("a", "B/s", 1.0)]), ("y", 1.0, 0.0, [KeyboardInterrupt()]))
    run._plan[1] = run._plan[1]._replace(
        benchmark=replace(run._plan[1].benchmark, run=lambda task: (_ for _ in ()).throw(KeyboardInterrupt()))
    )
    with pytest.raises(KeyboardInterrupt):
        run.go(lambda r: None, lambda p: None)
    record = run.ended()
    assert not record.complete
    assert [one.name for one in record.measured] == ["a"]
    assert [one.name for one in record.waived] == ["y"]


def test_one_run_is_left_as_it_is():
    record = cpu_only()
    assert together(record) == record


def test_benchmarks_are_chosen_by_pattern():
    every = [each.name for each in benchmarks()]
    assert len(set(every)) == len(every)
    assert [each.name for each in chosen(["storage*"])] == ["storage", "storage.all"]
    assert "gpu.chain" not in [each.name for each in chosen(skip=["gpu.*"])]
    with pytest.raises(BadInput, match="no benchmark is called 'strage'") as found:
        chosen(["strage"])
    assert "storage" in found.value.problems[0].help


def test_a_plan_never_writes_more_than_the_cap_and_leaves_out_what_has_nothing_to_do():
    record = Record(topology=topology(drives=1))
    plan = planned(record, Options(max_write=50e9), chosen())
    assert sum(each.cost.bytes_written for each in plan) <= 50e9
    assert "storage.all" not in [each.benchmark.name for each in plan]
    two = planned(Record(topology=topology(drives=2)), Options(max_write=50e9), chosen())
    assert "storage.all" in [each.benchmark.name for each in two]
    assert sum(each.cost.bytes_written for each in two) <= 50e9


def test_quick_is_under_a_minute_with_one_drive_and_no_gpu():
    plan = planned(Record(topology=topology(drives=1)), Options(quick=True), chosen())
    assert sum(each.cost.seconds for each in plan) < 60


def test_a_whole_run_is_under_six_minutes_with_eight_drives_and_eight_gpus():
    plan = planned(Record(topology=topology(gpus=8, drives=8)), Options(), chosen())
    assert sum(each.cost.seconds for each in plan) < 360


def test_arrays_fit_the_memory_that_a_container_leaves():
    def size(**more):
        return dram._array_bytes(Task(topology(**more)))

    assert size() == dram.LEAST_OF_A_THREAD
    limited = size(memory_limit_bytes=8.0 * 2**30)
    assert 2 * 32 * limited <= 2**30
    with pytest.raises(CannotMeasure, match="too little"):
        size(memory_limit_bytes=64.0 * 2**20)


def test_an_optimizer_that_is_not_there_is_derived_from_memory_and_marked(monkeypatch):
    monkeypatch.setattr(optimizer, "find_spec", lambda name: None)
    (rate,) = optimizer._run(
        Task(topology(), earlier={names.DRAM_COPY: measured(names.DRAM_COPY, "B/s", 280e9)})
    )
    assert rate.median == pytest.approx(280e9 / ADAM_BYTES) == pytest.approx(10e9)
    assert rate.kind == "derived"
    with pytest.raises(CannotMeasure, match="torch is not installed"):
        list(optimizer._run(Task(topology())))


@pytest.mark.slow
def test_memory_is_measured_on_this_machine():
    task = Task(topology().model_copy(update={"cpus": (min(os.sched_getaffinity(0)),)}), Options(quick=True))
    before = os.sched_getaffinity(0)
    copy, scale = dram._run(replace(task, topology=task.topology.model_copy(update={"cpu_limit": 1.0})))
    assert (copy.name, scale.name) == (names.DRAM_COPY, names.DRAM_SCALE)
    assert min(copy.n, scale.n) >= 7
    # Threads bind themselves, not the process.
    assert os.sched_getaffinity(0) == before


@pytest.mark.slow
def test_the_optimizer_of_this_machine_is_measured_where_torch_is():
    pytest.importorskip("torch")
    small = topology().model_copy(
        update={"cpus": tuple(sorted(os.sched_getaffinity(0))), "memory_bytes": 4e9}
    )
    rate, core, *_ = optimizer._run(Task(small, Options(quick=True)))
    assert (rate.name, rate.unit, rate.kind) == (names.ADAM_RATE, "param/s", "measured")
    assert (core.name, core.unit, core.kind) == (names.CORE_ADAM_RATE, "param/s", "measured")
    assert "1 thread on one core" in core.method
    assert "AdamW of torch" in rate.method or "DeepSpeedCPUAdam" in rate.method


def test_a_child_ends_with_its_parent(plant):
    code = (
        "import os; from ziplan.bench.process import watched; from ziplan.bench.benchmark import *; "
        "from ziplan.bench.topology import Topology\n"
        "b = Benchmark('tells_its_number', '', lambda t: Cost(1.0), lambda t: iter(()))\n"
        "found = watched(b, Task(Topology(), seconds=600.0), 600.0)\n"
        "print(int(next(found).median), flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not alive(int(done.stdout))
