"""The links of GPUs: to the host, each alone and all at once, and to each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from ziplan.bench import names
from ziplan.bench.cuda.device import Gpu
from ziplan.bench.cuda.session import Session, each, size_text
from ziplan.bench.cuda.transfers import (
    BUFFER,
    SMALLEST_BUFFER,
    connect,
    device_to_device,
    device_to_host,
    host_to_device,
)
from ziplan.bench.measurement import Result

ALL_PAIRS = 4
"""GPUs of which all pairs are measured: 12; of eight it would be 56, which mostly say the same."""
DIRECTIONS = {"host_to_device": host_to_device, "device_to_host": device_to_host}


def host_links(session: Session) -> Iterator[Result]:
    """Each GPU alone: one direction, the other, both at once."""
    for gpu in session.gpus:
        for direction in DIRECTIONS:
            yield from each([names.gpu(gpu.index, direction)], _alone(session, gpu, direction))
        both = [names.gpu(gpu.index, f"both.{direction}") for direction in DIRECTIONS]
        yield from each(both, _both(session, gpu, both))


def _alone(session: Session, gpu: Gpu, direction: str) -> Iterator[Result]:
    size = session.pinned_size(1, BUFFER, SMALLEST_BUFFER)
    way = f"page-locked copies of {size_text(size)}"
    yield session.rate(names.gpu(gpu.index, direction), DIRECTIONS[direction](gpu, size), way)


def _both(session: Session, gpu: Gpu, wanted: list[str]) -> Iterator[Result]:
    size = session.pinned_size(len(wanted), BUFFER, SMALLEST_BUFFER)
    way = f"page-locked copies of {size_text(size)} both ways at once"
    made = [make(gpu, size) for make in DIRECTIONS.values()]
    yield from session.rates(wanted, names.gpu(gpu.index, "both"), made, way)[1]


def host_links_together(session: Session) -> Iterator[Result]:
    """All GPUs at once, each direction: what shared root ports and the host's memory leave to them."""
    if len(session.gpus) < 2:
        return
    for direction in DIRECTIONS:
        total = names.gpu("all", direction)
        parts = [names.gpu(gpu.index, f"beside_all.{direction}") for gpu in session.gpus]
        yield from each([total, *parts], _at_once(session, total, parts, direction))


def _at_once(session: Session, total: str, parts: list[str], direction: str) -> Iterator[Result]:
    size = session.pinned_size(len(parts), BUFFER, SMALLEST_BUFFER)
    way = f"page-locked copies of {size_text(size)}, {len(parts)} GPUs at once, the time in which all ran"
    made = [DIRECTIONS[direction](gpu, size) for gpu in session.gpus]
    whole, shares = session.rates(parts, total, made, way)
    yield whole
    yield from shares


def peer_links(session: Session) -> Iterator[Result]:
    """One GPU to another alone, pair by pair, then each to the next at once."""
    count = len(session.gpus)
    if count < 2:
        return
    for sender, receiver in pairs(count, session.task.options.quick):
        name = names.gpu(sender, f"to.{receiver}")
        yield from each([name], _pair(session, name, session.gpus[sender], session.gpus[receiver]))
    total = names.gpu("all", "to_next")
    yield from each([total], _ring(session, total, ring(count)))


def ring(count: int) -> list[tuple[int, int]]:
    """Each GPU and the next."""
    return [(index, (index + 1) % count) for index in range(count)]


def pairs(count: int, quick: bool) -> list[tuple[int, int]]:
    """Pairs measured alone: all of four GPUs; of more, each with the next and the one half way round."""
    if count < 2:
        return []
    if quick:
        return ring(count)
    if count <= ALL_PAIRS:
        return list(permutations(range(count), 2))
    return ring(count) + [(index, (index + count // 2) % count) for index in range(count)]


def _pair(session: Session, name: str, sender: Gpu, receiver: Gpu) -> Iterator[Result]:
    how = _connected(session, sender, receiver)
    size = _peer_size(session, sender, receiver)
    way = f"copies of {size_text(size)} {how}"
    yield session.rate(name, device_to_device(sender, receiver, size), way)


def _ring(session: Session, total: str, steps: list[tuple[int, int]]) -> Iterator[Result]:
    """The slowest of all: a ring goes on at its pace."""
    both = [(session.gpus[sender], session.gpus[receiver]) for sender, receiver in steps]
    how = sorted({_connected(session, *pair) for pair in both})
    size = min(_peer_size(session, *pair) for pair in both)
    made = [device_to_device(*pair, size) for pair in both]
    parts = [f"{total}.{sender}" for sender, _ in steps]
    way = f"copies of {size_text(size)}, each GPU to the next at once, the slowest, {', '.join(how)}"
    _, shares = session.rates(parts, total, made, way)
    slowest = min(shares, key=lambda share: share.median)
    yield slowest.model_copy(update={"name": total})


def _peer_size(session: Session, sender: Gpu, receiver: Gpu) -> int:
    """Each GPU holds one buffer to send from and one to receive into."""
    sizes = [session.device_size(gpu, 2, BUFFER, SMALLEST_BUFFER) for gpu in (sender, receiver)]
    return min(sizes)


def _connected(session: Session, sender: Gpu, receiver: Gpu) -> str:
    return "by peer access" if connect(session.driver, sender, receiver) else "through the host"
