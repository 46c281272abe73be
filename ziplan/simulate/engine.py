"""The engine: a clock, links that are shared, pools of tokens that run out.

A task starts when all tasks before it have finished and its tokens are there, then works at its
fair share of every link that it crosses until its work is done. Equal input gives equal output to
the last bit: events at one instant are taken in the order of the tasks' numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from ziplan.errors import ZiplanError
from ziplan.simulate.sharing import Share, Uses, alone, fair_shares

ROUNDING = 1e-9
UNLIMITED = float("inf")

Tokens = tuple[tuple[int, float], ...]
"""(pool, how many of its tokens)."""


class Stuck(ZiplanError):
    """A step that cannot go on: what waits for tokens waits for ever. The message says who and for what."""


class Task(NamedTuple):
    """A piece of work: how much, over which links, after which tasks, with which tokens in hand.

    Tokens are taken at the start and given back at the end; one task may take what another gives.
    """

    name: str
    work: float
    uses: Uses
    after: tuple[int, ...] = ()
    takes: Tokens = ()
    gives: Tokens = ()


class Pool(NamedTuple):
    """So many tokens of a kind; without a capacity it is a gauge, which never makes anybody wait."""

    name: str
    capacity: float = UNLIMITED


class Played(NamedTuple):
    """What happened: for each task when its turn came, when it started (tokens in hand) and finished, in s.

    `limits` has, for each task, the link that held it back from which time on; `levels` for each
    pool how many tokens were out from which time on.
    """

    ready: list[float]
    start: list[float]
    finish: list[float]
    limits: list[list[tuple[float, int]]]
    levels: list[list[tuple[float, float]]]

    @property
    def span(self) -> float:
        """Time of the last event."""
        return max(self.finish, default=0.0)


def play(tasks: Sequence[Task], capacities: Sequence[float], pools: Sequence[Pool] = ()) -> Played:
    """Play tasks from time 0; `after` names tasks by their number, `capacities` are units per second."""
    return _Engine(tasks, capacities, pools).run()


class _Engine:
    """One run of the clock."""

    def __init__(self, tasks: Sequence[Task], capacities: Sequence[float], pools: Sequence[Pool]) -> None:
        count = len(tasks)
        self.tasks, self.capacities, self.pools = tasks, capacities, pools
        self.now = 0.0
        self.events: list[tuple[float, int, int]] = []
        self.blocked = [len(task.after) for task in tasks]
        self.followers: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for before in task.after:
                self.followers[before].append(number)
        self.users: list[dict[int, None]] = [{} for _ in capacities]
        self.rate = [0.0] * count
        self.remaining = [task.work for task in tasks]
        self.since = [0.0] * count
        self.version = [0] * count
        self.out = [0.0] * len(pools)
        self.queues: list[deque[int]] = [deque() for _ in pools]
        # Bytes are added up in floating point: a pool that is filled to the brim is not overdrawn.
        self.most = [pool.capacity * (1 + ROUNDING) for pool in pools]
        self.lines = [self._waits_for(task) if task.takes else () for task in tasks]
        # What a task gets follows from what is used beside it: the same few mixtures come again and again.
        self.single: dict[Uses, Share] = {}
        self.mixed: dict[tuple[Uses, ...], tuple[tuple[int, Share], ...]] = {}
        self.stirred: dict[int, None] = {}
        self.done = 0
        never = float("nan")
        self.played = Played(
            [never] * count, [never] * count, [never] * count, [[] for _ in tasks], [[] for _ in pools]
        )

    def _waits_for(self, task: Task) -> tuple[int, ...]:
        """The pools that a task stands in line at: those that can run out."""
        return tuple(pool for pool, _ in task.takes if self.pools[pool].capacity != UNLIMITED)

    def run(self) -> Played:
        """Play until nothing is left to do."""
        self._advance([number for number, blocked in enumerate(self.blocked) if not blocked], [])
        while self.events:
            self.now = self.events[0][0]
            finished = []
            while self.events and self.events[0][0] == self.now:
                _, number, version = heappop(self.events)
                if version == self.version[number]:
                    finished.append(number)
            if finished:
                self._advance([], finished)
        if self.done < len(self.tasks):
            raise Stuck(self._stuck())
        return self.played

    def _advance(self, ready: list[int], finished: list[int]) -> None:
        """Everything that happens at this instant: ends, starts that they allow, and the new shares."""
        touched: dict[int, None] = {}
        while finished or ready:
            arrived, ready = ready, []
            for number in finished:
                self._end(number, touched, arrived)
            finished = []
            if arrived or self.stirred:
                finished = [number for number in self._arrive(arrived) if self._begin(number, touched)]
        if touched:
            self._share(touched)

    def _end(self, number: int, touched: dict[int, None], arrived: list[int]) -> None:
        """A task is done; the tasks whose turn comes with that arrive."""
        task = self.tasks[number]
        self.played.finish[number] = self.now
        self.done += 1
        self.version[number] += 1
        for link, _ in task.uses:
            users = self.users[link]
            users.pop(number, None)
            if users:
                touched[link] = None
        for pool, count in task.gives:
            self._move(pool, -count)
        blocked = self.blocked
        for follower in self.followers[number]:
            blocked[follower] -= 1
            if not blocked[follower]:
                arrived.append(follower)

    def _arrive(self, arrived: list[int]) -> list[int]:
        """Tasks that start now: those that wait for no token, and those first in line for what is there."""
        starting = []
        arrived.sort()
        for number in arrived:
            self.played.ready[number] = self.now
            lines = self.lines[number]
            for pool in lines:
                self.queues[pool].append(number)
                self.stirred[pool] = None
            if not lines:
                starting.append(number)
        while self.stirred:
            pool, _ = self.stirred.popitem()
            queue = self.queues[pool]
            while queue and self._granted(queue[0]):
                starting.append(queue[0])
                for line in self.lines[queue[0]]:
                    self.stirred[line] = None
                self._leave_lines(queue[0])
        starting.sort()
        return starting

    def _granted(self, number: int) -> bool:
        """Whether a task is first in all its lines and its tokens are there."""
        return all(
            self.queues[pool][0] == number and self.out[pool] + count <= self.most[pool]
            for pool, count in self.tasks[number].takes
            if pool in self.lines[number]
        )

    def _leave_lines(self, number: int) -> None:
        for pool in self.lines[number]:
            self.queues[pool].popleft()
        for pool, count in self.tasks[number].takes:
            if pool in self.lines[number]:
                self._move(pool, count)

    def _begin(self, number: int, touched: dict[int, None]) -> bool:
        """A task starts; whether it is done at once, having nothing to do."""
        task, lines = self.tasks[number], self.lines[number]
        self.played.start[number] = self.now
        for pool, count in task.takes:
            if pool not in lines:
                self._move(pool, count)
        if task.work <= 0 or not task.uses:
            return True
        self.since[number] = self.now
        shared = False
        for link, _ in task.uses:
            shared = shared or bool(self.users[link])
            self.users[link][number] = None
        if shared:
            touched.update((link, None) for link, _ in task.uses)
        else:
            self._set(number, self._alone(task.uses))
        return False

    def _alone(self, uses: Uses) -> Share:
        """The share of a task that has its links for itself."""
        share = self.single.get(uses)
        if share is None:
            share = self.single[uses] = alone(uses, self.capacities)
        return share

    def _share(self, touched: dict[int, None]) -> None:
        """New shares for every task that is connected with these links by links in common."""
        found = self._connected(touched)
        if len(found) == 1:
            ((number, uses),) = found.items()
            self._set(number, self._alone(uses))
            return
        key = tuple(found.values())
        if key not in self.mixed:
            shares = fair_shares(dict(enumerate(key)), self.capacities)
            self.mixed[key] = tuple(shares.items())
        numbers = tuple(found)
        for place, share in self.mixed[key]:
            self._set(numbers[place], share)

    def _connected(self, touched: dict[int, None]) -> dict[int, Uses]:
        """The tasks on these links, those on the links that they use, and so on."""
        found: dict[int, Uses] = {}
        links = list(touched)
        seen = set(links)
        while links:
            for number in self.users[links.pop()]:
                if number in found:
                    continue
                found[number] = self.tasks[number].uses
                for link, _ in found[number]:
                    if link not in seen:
                        seen.add(link)
                        links.append(link)
        return found

    def _set(self, number: int, share: Share) -> None:
        """Let a task go on at another rate; its end moves."""
        limits = self.played.limits[number]
        if not limits or limits[-1][1] != share.link:
            limits.append((self.now, share.link))
        if share.rate == self.rate[number]:
            return
        self.remaining[number] -= self.rate[number] * (self.now - self.since[number])
        self.rate[number], self.since[number] = share.rate, self.now
        self.version[number] += 1
        end = self.now + max(0.0, self.remaining[number]) / share.rate
        heappush(self.events, (end, number, self.version[number]))

    def _move(self, pool: int, count: float) -> None:
        """Tokens go out, or come back (a negative count)."""
        self.out[pool] += count
        if count < 0:
            self.stirred[pool] = None
        self.played.levels[pool].append((self.now, self.out[pool]))

    def _stuck(self) -> str:
        """Who waits for which tokens, and how many of them there are."""
        for pool, queue in enumerate(self.queues):
            if queue:
                task = self.tasks[queue[0]]
                wants = sum(count for place, count in task.takes if place == pool)
                kind = self.pools[pool]
                return (
                    f"at {self.now:.6g} s '{task.name}' waits for ever for {wants:g} of '{kind.name}': "
                    f"{self.out[pool]:g} of {kind.capacity:g} are out and none comes back"
                )
        names = [task.name for number, task in enumerate(self.tasks) if self.blocked[number] > 0]
        return f"tasks wait for each other: {', '.join(names[:4])}"
