"""NVIDIA's driver through `cuda.bindings`, which has no types: the only module that touches it.

What it hands out are opaque handles and addresses; every failed call becomes a CudaError that names
the call. https://docs.nvidia.com/cuda/cuda-driver-api/
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NewType, cast

from ziplan.bench.cuda.compiler import Version
from ziplan.bench.measurement import CannotMeasure

Address = NewType("Address", int)
"""Of memory that the GPU can reach, its own or page-locked memory of the host."""
Context = NewType("Context", object)
Stream = NewType("Stream", object)
Event = NewType("Event", object)
Kernel = NewType("Kernel", object)

EXTRA = "pip install 'ziplan[cuda13]' (or cuda12, for drivers of CUDA 12)"
NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""
NOT_FOUND = 500
"""CUDA_ERROR_NOT_FOUND."""
NOT_READY = 600
"""CUDA_ERROR_NOT_READY."""
DEVICE_ATTRIBUTE = "CU_DEVICE_ATTRIBUTE_"


class CudaError(CannotMeasure):
    """A call that the driver refused, with its name for the reason."""

    def __init__(self, call: str, code: int, words: str) -> None:
        self.call, self.code = call, code
        super().__init__(f"CUDA: {call}: {words}")


class Driver:
    """The driver of this process, initialized."""

    def __init__(self) -> None:
        """CannotMeasure where there is no driver, no GPU or no `cuda.bindings`."""
        # Kernels are loaded when a module is: one loaded late would wait for a kernel that waits for us.
        os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
        try:
            self._cuda: Any = import_module("cuda.bindings.driver")
        except ImportError as problem:
            raise CannotMeasure(f"cuda-bindings cannot be imported ({problem}): {EXTRA}") from None
        try:
            self.call("cuInit", 0)
        except CudaError as problem:
            if problem.code == NO_DEVICE:
                raise CannotMeasure("NVIDIA's driver shows no GPU") from None
            raise
        raw = int(self.call("cuDriverGetVersion"))
        self.version = Version(raw // 1000, raw % 1000 // 10)
        """The newest CUDA that it serves."""

    def call(self, name: str, *arguments: object) -> Any:
        """What a driver function returns: nothing, a value, or a tuple of them."""
        try:
            code, *values = getattr(self._cuda, name)(*arguments)
        except RuntimeError as problem:
            if type(problem).__name__ == "DynamicLibNotFoundError":
                raise CannotMeasure("no NVIDIA driver: libcuda.so.1 is not found") from None
            # An older driver: FunctionNotFoundError.
            raise CudaError(name, NOT_FOUND, str(problem)) from None
        if int(code) != 0:
            raise CudaError(name, int(code), getattr(code, "name", "unknown error"))
        return values[0] if len(values) == 1 else tuple(values) or None

    def device_count(self) -> int:
        """GPUs that CUDA shows (CUDA_VISIBLE_DEVICES narrows it)."""
        return int(self.call("cuDeviceGetCount"))

    def attribute(self, device: object, name: str) -> int:
        """A whole-number property of a GPU, by its name without its prefix ("MULTIPROCESSOR_COUNT")."""
        key = getattr(self._cuda.CUdevice_attribute, DEVICE_ATTRIBUTE + name)
        return int(self.call("cuDeviceGetAttribute", key, device))

    def text(self, name: str, *arguments: object) -> str:
        """What a function returns as zero-terminated text."""
        return cast("bytes", self.call(name, *arguments)).split(b"\0")[0].decode().strip()

    def kernel(self, module: object, name: str) -> Kernel:
        """A kernel of a loaded module."""
        return Kernel(self.call("cuModuleGetFunction", module, name.encode()))

    def launch(
        self, kernel: Kernel, stream: Stream, blocks: int, threads: int, arguments: Sequence[ctypes.c_uint64]
    ) -> None:
        """Queue a kernel. The driver copies of each argument as many low bytes as the kernel's own has."""
        addresses = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(one) for one in arguments))
        shape = (blocks, 1, 1, threads, 1, 1, 0)
        self.call("cuLaunchKernel", kernel, *shape, stream, ctypes.addressof(addresses), 0)

    def reached(self, event: Event) -> bool:
        """Whether all that was queued before an event is done."""
        try:
            self.call("cuEventQuery", event)
        except CudaError as problem:
            if problem.code == NOT_READY:
                return False
            raise
        return True

    def seconds_between(self, begin: Event, end: Event) -> float:
        """Time between two events that were reached, to half a microsecond."""
        return float(self.call("cuEventElapsedTime", begin, end)) / 1e3
