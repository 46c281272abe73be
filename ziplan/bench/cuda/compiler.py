"""The kernels, compiled on the node by whichever NVRTC serves its driver and GPU.

NVRTC's C interface is called directly: a node may hold one of CUDA 12 and one of CUDA 13 (a wheel of
each, one that torch brought along, a toolkit), and which of them serves depends on the GPU and on the
driver. What comes out is a cubin for the GPU's exact architecture, which any driver of the same CUDA
major version or a later one loads, while PTX would need a driver as new as its compiler.
https://docs.nvidia.com/cuda/nvrtc/ and https://docs.nvidia.com/deploy/cuda-compatibility/
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ziplan.bench.cuda.cubins import Cubins
from ziplan.bench.measurement import CannotMeasure

SOURCE = Path(__file__).with_name("kernels.cu")
FOLDERS = ("nvidia/cuda_nvrtc/lib", "nvidia/cu*/lib")
"""Where the wheels of CUDA 12 and of CUDA 13 put NVRTC, below a folder that Python imports from."""
SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
LIBRARY = re.compile(r"libnvrtc\.so\.\d+(\.\d+)*$")
"""The compiler itself: beside it lie its builtins and an alternative build."""
TOO_NEW = "a cubin of CUDA {major} needs a driver of CUDA {major}, and this one is of CUDA {driver}"


class Version(NamedTuple):
    """A version of CUDA."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Nvrtc:
    """One NVRTC library."""

    def __init__(self, path: str) -> None:
        """Load it; OSError where that is not possible."""
        self.path = path
        self._library = ctypes.CDLL(path)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = Version(major.value, minor.value)

    @property
    def architectures(self) -> tuple[int, ...]:
        """What it compiles for: 90 is compute capability 9.0."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", found)
        return tuple(found)

    def compile(self, source: bytes, options: Sequence[str]) -> bytes:
        """The cubin of a source; CannotMeasure with the compiler's words where it has none."""
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source, b"kernels.cu", 0, None, None)
        try:
            plain = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            try:
                self._call("nvrtcCompileProgram", program, len(options), plain)
            except CannotMeasure as problem:
                log = self._text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
                words = log.rstrip(b"\0").decode(errors="replace").strip()
                raise CannotMeasure(f"the kernels do not compile ({problem}): {words[:500]}") from None
            return self._text(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, size_of: str, content_of: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(size_of, program, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self._call(content_of, program, content)
        return content.raw

    def _call(self, name: str, *arguments: object) -> None:
        function: Callable[..., int] = getattr(self._library, name)
        if code := function(*arguments):
            words = self._library.nvrtcGetErrorString
            words.restype = ctypes.c_char_p
            raise CannotMeasure(f"NVRTC: {name}: {(words(code) or b'unknown error').decode()}")


@cache
def compilers() -> tuple[Nvrtc, ...]:
    """Every NVRTC of this environment, the newest first."""
    found: dict[Version, Nvrtc] = {}
    for path in _candidates():
        try:
            nvrtc = Nvrtc(path)
        except (OSError, AttributeError, CannotMeasure):
            continue
        found.setdefault(nvrtc.version, nvrtc)
    return tuple(found[version] for version in sorted(found, reverse=True))


def _candidates() -> Iterator[str]:
    """Paths and names of libraries: the wheels' first, then toolkits', then what the loader knows."""
    folders = [found for root in sys.path for pattern in FOLDERS for found in Path(root or ".").glob(pattern)]
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    folders += [Path(home, "lib64") for home in homes if home]
    folders += sorted(Path("/usr/local").glob("cuda*/lib64"), reverse=True)
    for folder in folders:
        yield from (str(path) for path in sorted(folder.glob("libnvrtc.so.*")) if LIBRARY.match(path.name))
    yield from SONAMES


def compiler_for(architecture: int, driver_major: int, among: Sequence[Nvrtc]) -> Nvrtc:
    """The newest NVRTC whose cubins the driver loads and that knows the architecture (90 is 9.0)."""
    if not among:
        raise CannotMeasure(
            "no NVRTC to compile the kernels with: pip install 'ziplan[cuda13]' (cuda12 for CUDA 12 drivers)"
        )
    reasons = []
    for nvrtc in among:
        if nvrtc.version.major > driver_major:
            reasons.append(TOO_NEW.format(major=nvrtc.version.major, driver=driver_major))
        elif architecture not in nvrtc.architectures:
            reasons.append(f"NVRTC {nvrtc.version} does not compile for sm_{architecture}")
        else:
            return nvrtc
    extra = "cuda12" if driver_major == 12 or architecture < 75 else "cuda13"
    raise CannotMeasure(f"{'; '.join(reasons)}: pip install 'ziplan[{extra}]'")


def cubin(nvrtc: Nvrtc, architecture: int, cubins: Cubins | None = None) -> bytes:
    """The kernels for an architecture, from the user's cache where they are in it."""
    source = SOURCE.read_bytes()
    options = (f"--gpu-architecture=sm_{architecture}", "--std=c++17")
    store = Cubins.of_user() if cubins is None else cubins
    key = b"\0".join([source, *(option.encode() for option in options), str(nvrtc.version).encode()])
    return store.get(key, lambda: nvrtc.compile(source, options))
