"""ZP51x: what the project itself asks for, a gate or a plan that must not become slower."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import get_args

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Number, Rule
from ziplan.hardware.node import Medium
from ziplan.units import figure, show, show_duration


def broken_gate(case: Case) -> Iterator[Hit]:
    """Every gate that the config breaks, or that cannot be judged."""
    if case.gates is not None:
        for message, value, unit in (*_of_time(case), *_of_memory(case), *_of_drives(case)):
            yield Hit(message, "", "", "change the config, or the gate", Number(value, unit))


def _of_time(case: Case) -> Iterator[tuple[str, float, str]]:
    gates, step, tokens = case.gates, case.step_time, case.tokens_per_s
    assert gates is not None
    if gates.max_step_time is not None and not step <= gates.max_step_time:
        limit = show_duration(gates.max_step_time, 3)
        yield f"max_step_time: a step takes {show_duration(step, 3)}, the gate is {limit}", step, "s"
    if gates.min_tokens_per_s is not None and not tokens >= gates.min_tokens_per_s:
        limit = show(gates.min_tokens_per_s, "token/s", 3)
        yield f"min_tokens_per_s: {show(tokens, 'token/s', 3)}, the gate is {limit}", tokens, "token/s"
    stalled = case.stall_fraction
    if gates.max_stall_fraction is not None and not stalled <= gates.max_stall_fraction:
        limit = _percent(gates.max_stall_fraction)
        told = "unknown" if math.isnan(stalled) else _percent(stalled)
        yield f"max_stall_fraction: the GPU waits {told} of a step, the gate is {limit}", stalled, "1"


def _percent(share: float) -> str:
    """A share with three digits: gates are as narrow as people write them."""
    return f"{figure(100 * share, 3)}%"


def _of_memory(case: Case) -> Iterator[tuple[str, float, str]]:
    gates, estimate = case.gates, case.estimate
    assert gates is not None
    if gates.max_memory is None:
        return
    if estimate is None:
        yield "max_memory: the config comes to no plan, so its memory is unknown", math.nan, "1"
        return
    stated = gates.max_memory if isinstance(gates.max_memory, dict) else {}
    # A gate for several machines may name a tier that one of them lacks, and nothing is needed there.
    for tier in stated.keys() - estimate.memory.keys() - set(get_args(Medium)):
        known = ", ".join(estimate.memory)
        yield f"max_memory: no tier is called {tier!r:.40}, there are {known}", math.nan, "1"
    for tier, memory in estimate.memory.items():
        limit = stated.get(tier) if isinstance(gates.max_memory, dict) else gates.max_memory
        used = memory.high / memory.available if memory.available > 0 else math.inf
        if limit is not None and not used <= limit:
            told = f"up to {_percent(used)} of {tier} is needed, the gate is {_percent(limit)}"
            yield f"max_memory: {told}", used, "1"


def _of_drives(case: Case) -> Iterator[tuple[str, float, str]]:
    gates, estimate = case.gates, case.estimate
    assert gates is not None
    least = gates.min_drive_lifetime
    if least is None:
        return
    if estimate is None:
        yield "min_drive_lifetime: the config comes to no plan, so what it writes is unknown", math.nan, "s"
        return
    if not estimate.flash_writes > 0:
        return
    life = math.nan if estimate.drive_lifetime is None else estimate.drive_lifetime
    if not life >= least:
        told = "unknown (no endurance stated)" if math.isnan(life) else show_duration(life, 3)
        limit = show_duration(least, 3)
        yield f"min_drive_lifetime: the drives' endurance lasts {told}, the gate is {limit}", life, "s"


def slower_than_before(case: Case) -> Iterator[Hit]:
    """A token takes longer than in the baseline, by more than is allowed."""
    before = case.baseline
    if before is None:
        return
    new, old = case.tokens_per_s, before.tokens_per_s
    change = old / new - 1 if new and old else math.nan
    if change <= case.max_regress:
        return
    told = "unknown" if math.isnan(change) else f"{change:+.1%}"
    yield Hit(
        f"time per token {told} against {before.file} ({show(new, 'token/s', 3)}, before "
        f"{show(old, 'token/s', 3)}); "
        f"{case.max_regress:.1%} is allowed",
        fix="change the config, or take its plan as the new baseline",
        number=Number(change),
    )


GATES = (
    Rule(
        "ZP511",
        "A gate is broken",
        "error",
        broken_gate,
        "The gates of the project (`gates:` in .ziplan.yaml, or --gates) do not hold, or cannot be judged.",
        "They are there to keep a config from becoming slower or fuller than what was agreed on.",
        "max_step_time: 20 s, and the played step takes 31 s",
        "Change the config, or the gate.",
    ),
    Rule(
        "ZP512",
        "Slower than the baseline",
        "error",
        slower_than_before,
        "A token takes longer than under --baseline, by more than --max-regress.",
        "Both are played on the same model and machine, so the difference is the config's.",
        "--baseline plan.yaml --max-regress 3%, and offload was turned on",
        "Change the config, or take its plan as the new baseline.",
    ),
)
