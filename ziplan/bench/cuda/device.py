"""A GPU: its properties, its memory and page-locked memory beside it, its kernels."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from ziplan.bench.cuda.compiler import compiler_for, compilers, cubin
from ziplan.bench.cuda.driver import Address, Context, CudaError, Driver, Event, Kernel, Stream
from ziplan.bench.topology import Topology

VECTOR = 16
"""Bytes that a thread of a kernel moves at once."""
THREADS = 512
BLOCKS_PER_MULTIPROCESSOR = 64
"""Many more than one holds at a time (2 to 4, by its registers): no last few of them run alone for long."""
SEED = 0x5EED1E55
POISON = 0xA5
"""What verified memory holds before: a copy that never took place is seen."""
NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: no waiting for the default stream, which torch may use."""
PORTABLE = 1
"""CU_MEMHOSTALLOC_PORTABLE: page-locked for every GPU."""
BLOCKING_SYNC = 4
"""CU_CTX_SCHED_BLOCKING_SYNC: threads that wait sleep, and leave the cores to those that read a drive."""
KERNELS = ("spin", "fill", "verify", "copy", "read")


class Gpu:
    """One GPU, by CUDA's index."""

    def __init__(self, driver: Driver, index: int, topology: Topology) -> None:
        """Open it and load its kernels."""
        self.driver, self.index = driver, index
        self.device = device = driver.call("cuDeviceGet", index)
        self.numa_node = numa_node(topology, driver.text("cuDeviceGetPCIBusId", 32, device))
        self._cpus = () if self.numa_node is None else topology.numa_cpus.get(self.numa_node, ())
        self.name = driver.text("cuDeviceGetName", 128, device)
        self.memory_bytes = int(driver.call("cuDeviceTotalMem", device))
        self.architecture = 10 * driver.attribute(device, "COMPUTE_CAPABILITY_MAJOR") + driver.attribute(
            device, "COMPUTE_CAPABILITY_MINOR"
        )
        self._blocks = BLOCKS_PER_MULTIPROCESSOR * driver.attribute(device, "MULTIPROCESSOR_COUNT")
        with suppress(CudaError):
            driver.call("cuDevicePrimaryCtxSetFlags", device, BLOCKING_SYNC)
        self.context = Context(driver.call("cuDevicePrimaryCtxRetain", device))
        self._kernels = self._load()

    def _load(self) -> dict[str, Kernel]:
        """All kernels, compiled for it."""
        nvrtc = compiler_for(self.architecture, self.driver.version.major, compilers())
        self.enter()
        module = self.driver.call("cuModuleLoadData", cubin(nvrtc, self.architecture))
        return {name: self.driver.kernel(module, f"ziplan_{name}") for name in KERNELS}

    def enter(self) -> None:
        """Make its context that of this thread."""
        self.driver.call("cuCtxSetCurrent", self.context)

    def free_bytes(self) -> int:
        """Memory that is left on it."""
        self.enter()
        return int(self.driver.call("cuMemGetInfo")[0])

    @contextmanager
    def memory(self, size: int) -> Iterator[Address]:
        """So many bytes of its memory."""
        self.enter()
        address = Address(int(self.driver.call("cuMemAlloc", size)))
        try:
            yield address
        finally:
            self.driver.call("cuMemFree", address)

    @contextmanager
    def pinned(self, size: int) -> Iterator[Address]:
        """So many page-locked bytes of the host, on the NUMA node that the GPU hangs from."""
        self.enter()
        with on_cpus(self._cpus):
            address = Address(int(self.driver.call("cuMemHostAlloc", size, PORTABLE)))
        try:
            yield address
        finally:
            self.driver.call("cuMemFreeHost", address)

    @contextmanager
    def stream(self) -> Iterator[Stream]:
        """A stream of it."""
        self.enter()
        stream = Stream(self.driver.call("cuStreamCreate", NON_BLOCKING))
        try:
            yield stream
        finally:
            self.driver.call("cuStreamDestroy", stream)

    def event(self) -> Event:
        """An event that keeps its time."""
        self.enter()
        return Event(self.driver.call("cuEventCreate", 0))

    def spin(self, stream: Stream, flag: Address, gave_up: Address, patience: float) -> None:
        """Hold a stream until the host sets the word at `flag`, for `patience` seconds at most."""
        words = [ctypes.c_uint64(flag), ctypes.c_uint64(gave_up), ctypes.c_uint64(int(patience * 1e9))]
        self.driver.launch(self._kernels["spin"], stream, 1, 1, words)

    def run(self, name: str, stream: Stream, first: Address, second: Address, size: int) -> None:
        """Queue a kernel over `size` bytes at `first`: `copy` there from `second`; `fill`, `verify`, `read`.

        `verify` adds to the word at `second`, `read` may write there.
        """
        count, seed = ctypes.c_uint64(size // VECTOR), ctypes.c_uint64(SEED)
        one, two = ctypes.c_uint64(first), ctypes.c_uint64(second)
        arguments: Mapping[str, list[ctypes.c_uint64]] = {
            "fill": [one, count, seed],
            "verify": [one, count, seed, two],
            "copy": [one, two, count],
            "read": [one, count, two],
        }
        self.driver.launch(self._kernels[name], stream, self._blocks, THREADS, arguments[name])

    def fill(self, address: Address, size: int) -> None:
        """Write the pattern to memory of this GPU, and wait for it."""
        with self.stream() as stream:
            self.run("fill", stream, address, address, size)
            self.driver.call("cuStreamSynchronize", stream)

    def poison(self, address: Address, size: int) -> None:
        """Overwrite memory of this GPU, and wait for it."""
        with self.stream() as stream:
            self.driver.call("cuMemsetD8Async", address, POISON, size, stream)
            self.driver.call("cuStreamSynchronize", stream)

    def wrong_vectors(self, address: Address, size: int) -> int:
        """How many 16-byte vectors of this GPU's memory are not the pattern."""
        with self.memory(VECTOR) as word, self.stream() as stream:
            self.driver.call("cuMemsetD8Async", word, 0, VECTOR, stream)
            self.run("verify", stream, address, word, size)
            with self.pinned(VECTOR) as host:
                self.driver.call("cuMemcpyDtoHAsync", host, word, VECTOR, stream)
                self.driver.call("cuStreamSynchronize", stream)
                return ctypes.c_uint64.from_address(host).value


@contextmanager
def on_cpus(cpus: Sequence[int]) -> Iterator[None]:
    """Run this thread on these CPUs: memory is taken from the node of the CPU that touches it first."""
    before = os.sched_getaffinity(0)
    wanted = before & set(cpus)
    if wanted:
        os.sched_setaffinity(0, wanted)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, before)


def numa_node(topology: Topology, address: str) -> int | None:
    """The NUMA node that the GPU at a PCI address hangs from; None where nobody says."""
    for gpu in topology.gpus:
        if gpu.pci.address.lower() == address.lower():
            return gpu.pci.numa_node
    return None


def open_gpus(driver: Driver, topology: Topology) -> tuple[Gpu, ...]:
    """Every GPU that CUDA shows."""
    return tuple(Gpu(driver, index, topology) for index in range(driver.device_count()))
