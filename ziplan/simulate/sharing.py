"""Max-min fair sharing of links among the transfers that use them at one instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Uses = tuple[tuple[int, float], ...]
"""(link, how much of it one unit of work takes) for every link that a task crosses at once."""


class Share(NamedTuple):
    """How fast one task works, and the link that lets it go no faster."""

    rate: float
    link: int


def alone(uses: Uses, capacities: Sequence[float]) -> Share:
    """The share of a task that has all its links for itself; of equal limits the first one's."""
    rate, link = min((capacities[link] / taken, place) for place, (link, taken) in enumerate(uses))
    return Share(rate, uses[link][0])


def fair_shares(tasks: Mapping[int, Uses], capacities: Sequence[float]) -> dict[int, Share]:
    """The max-min fair rate of each task: all rise together until a link is full, which holds its users.

    No task could go faster without slowing one that is no faster than itself. Links that nobody
    else uses, or that are wide enough, take no part. Ties go to the link with the lower number.
    """
    left: dict[int, float] = {}
    wanted: dict[int, float] = {}
    users: dict[int, list[int]] = {}
    for task, uses in tasks.items():
        for link, taken in uses:
            left[link] = capacities[link]
            wanted[link] = wanted.get(link, 0.0) + taken
            users.setdefault(link, []).append(task)
    shares: dict[int, Share] = {}
    level = 0.0
    while len(shares) < len(tasks):
        # Rounding must not make a later level fall below an earlier one.
        full, link = min((left[link] / wanted[link], link) for link in users)
        level = max(level, full)
        held = [task for task in users.pop(link) if task not in shares]
        for task in held:
            shares[task] = Share(level, link)
        _withdraw(held, tasks, shares, left, wanted, users)
    return shares


def _withdraw(
    held: Sequence[int],
    tasks: Mapping[int, Uses],
    shares: Mapping[int, Share],
    left: dict[int, float],
    wanted: dict[int, float],
    users: dict[int, list[int]],
) -> None:
    """Take what these tasks use out of the other links, and links that nobody is left on out of the race."""
    touched = {link for task in held for link, _ in tasks[task] if link in users}
    for task in held:
        for link, taken in tasks[task]:
            left[link] -= taken * shares[task].rate
    for link in touched:
        waiting = [task for task in users[link] if task not in shares]
        if not waiting:
            del users[link]
            continue
        # Summed anew: differences of rates of different size would leave rounding behind.
        wanted[link] = sum(taken for task in waiting for other, taken in tasks[task] if other == link)
        left[link] = max(left[link], 0.0)
