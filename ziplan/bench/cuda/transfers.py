"""Copies over links: between page-locked memory and a GPU, and between GPUs; each checked afterwards."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from ziplan.bench.cuda.device import POISON, Gpu
from ziplan.bench.cuda.driver import Address, CudaError, Driver, Stream
from ziplan.bench.cuda.stopwatch import Work
from ziplan.bench.measurement import CannotMeasure

BUFFER = 256 * 2**20
"""Bytes of a copy: starting one takes some 1.5 us, 0.03 % of the 5 ms that this takes at 55 GB/s."""
SMALLEST_BUFFER = 16 * 2**20
"""Below it the start of a copy is more than 0.5 % of it at 55 GB/s."""
PEER_ACCESS_ENABLED = 704
"""CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED."""


@contextmanager
def host_to_device(gpu: Gpu, size: int) -> Iterator[Work]:
    """Copies of a pattern from page-locked memory to a GPU."""
    with gpu.pinned(size) as host, gpu.memory(size) as device:
        gpu.fill(device, size)
        _copy_once(gpu, "cuMemcpyDtoHAsync", host, device, size)
        gpu.poison(device, size)

        def enqueue(stream: Stream) -> None:
            gpu.driver.call("cuMemcpyHtoDAsync", device, host, size, stream)

        yield Work(gpu, enqueue, size, lambda: check_pattern(gpu, device, size))


@contextmanager
def device_to_host(gpu: Gpu, size: int) -> Iterator[Work]:
    """Copies of a pattern from a GPU to page-locked memory."""
    with gpu.pinned(size) as host, gpu.memory(size) as device:
        gpu.fill(device, size)
        ctypes.memset(host, POISON, size)

        def enqueue(stream: Stream) -> None:
            gpu.driver.call("cuMemcpyDtoHAsync", host, device, size, stream)

        def check() -> None:
            gpu.poison(device, size)
            _copy_once(gpu, "cuMemcpyHtoDAsync", device, host, size)
            check_pattern(gpu, device, size)

        yield Work(gpu, enqueue, size, check)


@contextmanager
def device_to_device(sender: Gpu, receiver: Gpu, size: int) -> Iterator[Work]:
    """Copies of a pattern from one GPU to another, queued on the sender."""
    with sender.memory(size) as origin, receiver.memory(size) as target:
        sender.fill(origin, size)
        receiver.poison(target, size)
        arguments = (target, receiver.context, origin, sender.context, size)

        def enqueue(stream: Stream) -> None:
            sender.driver.call("cuMemcpyPeerAsync", *arguments, stream)

        yield Work(sender, enqueue, size, lambda: check_pattern(receiver, target, size))


def connect(driver: Driver, sender: Gpu, receiver: Gpu) -> bool:
    """Let a GPU write another's memory itself; whether it can. Else the driver copies through the host."""
    if not driver.call("cuDeviceCanAccessPeer", sender.device, receiver.device):
        return False
    sender.enter()
    try:
        driver.call("cuCtxEnablePeerAccess", receiver.context, 0)
    except CudaError as problem:
        return problem.code == PEER_ACCESS_ENABLED
    return True


def _copy_once(gpu: Gpu, call: str, to: Address, origin: Address, size: int) -> None:
    with gpu.stream() as stream:
        gpu.driver.call(call, to, origin, size, stream)
        gpu.driver.call("cuStreamSynchronize", stream)


def check_pattern(gpu: Gpu, device: Address, size: int) -> None:
    """CannotMeasure where memory of a GPU is not the pattern."""
    if wrong := gpu.wrong_vectors(device, size):
        raise CannotMeasure(
            f"{wrong} of {size // 16} vectors of 16 bytes arrived wrong on GPU {gpu.index} ({gpu.name}):"
            " its link or memory is not sound, and a rate of it means nothing"
        )
