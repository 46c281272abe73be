"""A process that runs one benchmark and hands each result on as it comes.

It is run as `python -m ziplan.bench.child FD`: the task comes as JSON on stdin, results go as lines of
JSON to the file descriptor, and whatever libraries say goes elsewhere.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any, TextIO

from ziplan.bench.benchmark import Benchmark, Options, Task, benchmarks
from ziplan.bench.lifetime import end_with_parent
from ziplan.bench.measurement import CannotMeasure, Measured, Noted, Result, Waived
from ziplan.bench.topology import Topology

KINDS: dict[str, type[Measured | Waived | Noted]] = {
    "measured": Measured,
    "waived": Waived,
    "noted": Noted,
}


def task_document(task: Task) -> dict[str, Any]:
    """A task as JSON can carry it."""
    return {
        "topology": task.topology.model_dump(mode="json"),
        "quick": task.options.quick,
        "storage": list(task.options.storage),
        "max_write": task.options.max_write,
        "earlier": [measured.model_dump(mode="json") for measured in task.earlier.values()],
        "seconds": task.seconds,
        "bytes_left": task.bytes_left,
    }


def task_of(document: dict[str, Any]) -> Task:
    """The task that a document carries."""
    earlier = [Measured.model_validate(each) for each in document["earlier"]]
    return Task(
        topology=Topology.model_validate(document["topology"]),
        options=Options(document["quick"], tuple(document["storage"]), document["max_write"]),
        earlier={measured.name: measured for measured in earlier},
        seconds=document["seconds"],
        bytes_left=document["bytes_left"],
    )


def line_of(result: Result) -> str:
    """A result as a line."""
    kind = next(name for name, model in KINDS.items() if isinstance(result, model))
    return json.dumps({kind: result.model_dump(mode="json")})


def result_of(line: str) -> Result:
    """The result that a line carries."""
    ((kind, values),) = json.loads(line).items()
    return KINDS[kind].model_validate(values)


def results(benchmark: Benchmark, task: Task) -> Iterator[Result]:
    """What a benchmark yields; what it raises waives the rest of it."""
    try:
        yield from benchmark.run(task)
    except CannotMeasure as error:
        yield Waived(name=benchmark.name, reason=str(error))
    except Exception as error:  # noqa: BLE001 - of a driver or a library, or a bug: the others go on
        traceback.print_exc()
        said = " ".join(str(error).split())[:200]
        yield Waived(name=benchmark.name, reason=f"failed: {type(error).__name__}: {said}")


def main() -> None:
    """Run the benchmark that stdin names."""
    end_with_parent()
    answers = os.fdopen(int(sys.argv[1]), "w")
    asked = json.load(sys.stdin)
    benchmark = next(each for each in benchmarks() if each.name == asked["benchmark"])
    _tell(benchmark, task_of(asked["task"]), answers)
    # Threads that a driver left behind have nothing to say.
    os._exit(0)


def _tell(benchmark: Benchmark, task: Task, answers: TextIO) -> None:
    for result in results(benchmark, task):
        answers.write(line_of(result) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
