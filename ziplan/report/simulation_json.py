"""A played step as JSON: `ziplan.simulate/1`."""

from __future__ import annotations

from typing import Any

from ziplan.report.json import Document, Notes, plan_object
from ziplan.report.simulation import Told
from ziplan.runtimes.runtime import NOT_BYTES, OF_OTHERS, bare
from ziplan.simulate.step import Simulation
from ziplan.simulate.trace import Tally

WAITS = 20
"""Modules whose waits are listed, the longest first."""


def simulate_document(told: Told) -> Document:
    """`ziplan.simulate/1`."""
    simulation, notes = told.simulation, Notes()
    notes.texts += list(simulation.cluster.warnings)
    training = simulation.workload.training
    document = {
        "schema": "ziplan.simulate/1",
        "problem": {
            "model": simulation.workload.model.name,
            "params": int(simulation.workload.model.params),
            "cluster": simulation.cluster.label,
            "gpu_count": int(told.estimate.gpus),
            "cluster_gpu_count": simulation.cluster.gpu_count,
            "runtime": simulation.runtime.NAME,
            "runtime_version": simulation.runtime.VERSION,
            "sequence_length_tokens": training.sequence_length,
            "precision": simulation.workload.precision,
        },
        "plan": plan_object(simulation.plan),
        "simulation": simulation_object(simulation, notes),
        "estimate": {
            "step_time_s": notes.number("estimate.step_time_s", told.estimate.step_time, "needs an input"),
            "verdict": told.estimate.verdict,
        },
        "straggler": _straggler(told, notes),
        "conventions": list(simulation.conventions),
        "assumptions": [
            {
                "name": each.name,
                "value": float(each.value),
                "unit": each.unit,
                "kind": "assumed",
                "source": each.source,
                "low": each.low,
                "high": each.high,
            }
            for each in simulation.assumptions
        ],
        "unknown": list(simulation.unknown),
    }
    return {**document, "notes": notes.texts}


def simulation_object(simulation: Simulation, notes: Notes) -> Document:
    """What every document about a played step has: seconds of one step, bytes of one rank."""
    sums, span = simulation.tally, simulation.makespan
    reason = f"needs {', '.join(simulation.unknown)}"

    def number(key: str, value: float) -> float | None:
        return notes.number(f"simulation.{key}", value, reason)

    known = not simulation.unknown and span > 0
    return {
        "makespan_s": number("makespan_s", span),
        "compute_s": number("compute_s", sums.computing if known else float("nan")),
        "stall_s": number("stall_s", sums.stalled if known else float("nan")),
        "stall_fraction": number("stall_fraction", sums.stalled / span if known else float("nan")),
        "stalls_s": {cause: float(seconds) for cause, seconds in sums.stalls_by_cause.items()},
        "waits": _waits(sums),
        "busy_s": {link: float(seconds) for link, seconds in sums.busy.items()},
        "utilisation": {link: float(seconds / span) for link, seconds in sums.busy.items()} if known else {},
        "bytes_per_step": _moved(sums),
        "buffers": _buffers(simulation, "1"),
        "memory": _buffers(simulation, "B"),
        "stages": [
            {
                "name": stage.name,
                "repeats": stage.repeats,
                "played": stage.rounds,
                "makespan_s": float(stage.tally.span),
                "stall_s": float(stage.tally.stalled),
            }
            for stage in simulation.stages
        ],
    }


def _waits(sums: Tally) -> list[Document]:
    longest = sorted(sums.stalls.items(), key=lambda each: (-each[1], each[0]))[:WAITS]
    return [
        {"module": who, "cause": cause, "stall_s": float(seconds)}
        for (who, cause), seconds in longest
        if seconds > 0
    ]


def _moved(sums: Tally) -> Document:
    """Bytes of one rank by tier and gather, as `ziplan.fit/1` has them."""
    links: dict[str, dict[str, float]] = {}
    for resource, amount in sums.moved.items():
        if resource in NOT_BYTES or resource.endswith(OF_OTHERS):
            continue
        name, _, direction = bare(resource).partition(".")
        row = links.setdefault(name, {"read_bytes": 0.0, "write_bytes": 0.0})
        row["write_bytes" if direction.endswith("write") else "read_bytes"] += float(amount)
    return links


def _buffers(simulation: Simulation, unit: str) -> dict[str, Any]:
    suffix = "_bytes" if unit == "B" else ""
    return {
        each.name: {
            f"high_water{suffix}": float(simulation.tally.high_water.get(each.name, 0.0) + each.held),
            f"capacity{suffix}": float(each.capacity),
        }
        for each in simulation.buffers
        if each.unit == unit
    }


def _straggler(told: Told, notes: Notes) -> Document:
    other = told.undisturbed
    none = "nothing was slowed down" if other is None else "needs an input"
    span = float("nan") if other is None else other.makespan
    return {
        "slow": {part: float(factor) for part, factor in told.simulation.slow.items()},
        "undisturbed_makespan_s": notes.number("straggler.undisturbed_makespan_s", span, none),
        "slowdown": notes.number(
            "straggler.slowdown", told.simulation.makespan / span if span else span, none
        ),
    }
