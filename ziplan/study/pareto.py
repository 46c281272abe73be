"""The points of a sweep that no other point beats in everything that is paid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ziplan.report.sweep import Outcome


def front(costs: Sequence[Sequence[float]]) -> list[int]:
    """Places of the points that no other one dominates, in order; less is better in every column.

    One point dominates another where it is nowhere worse and somewhere better. Of equal points the first
    stays: what more they have (drives, memory) is of no use.
    """
    table = np.asarray(costs, dtype=float)
    kept = []
    for place in range(len(table)):
        no_worse = (table <= table[place]).all(axis=1)
        better = (table < table[place]).any(axis=1)
        again = (table[:place] == table[place]).all(axis=1).any()
        if not again and not (no_worse & better).any():
            kept.append(place)
    return kept


def front_of(outcomes: Sequence[Outcome | None], priced: bool) -> tuple[int, ...]:
    """The front over time per token, cost per token, GPUs and flash wear of what fits.

    Points that surely fit; where none does those that are likely to, and else those that may. Cost is in
    dollars where every point has a price, else in GPU time.
    """
    for verdict, surely in (("fits", True), ("tight", True), ("tight", False)):
        fitting = [
            (place, each)
            for place, each in enumerate(outcomes)
            if each is not None and each.verdict == verdict and each.likely_fits >= surely
        ]
        if fitting:
            kept = front([_paid(each, priced) for _, each in fitting])
            return tuple(fitting[index][0] for index in kept)
    return ()


def _paid(outcome: Outcome, priced: bool) -> tuple[float, ...]:
    dollars = outcome.dollars_per_token
    cost = dollars if priced and dollars is not None else outcome.gpu_time_per_token
    return outcome.time_per_token, cost, float(outcome.gpus), outcome.flash_writes_per_token
