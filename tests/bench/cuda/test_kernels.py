"""The kernels: they compile for every architecture, and on the host they do what they should, and no more."""

import struct
import subprocess
import zlib
from collections import Counter
from typing import NamedTuple

import pytest
from bench.cuda.built import FAKE, KERNELS, build, compiler_of, need

from ziplan.bench.cuda.compiler import SOURCE, Version, compiler_for, cubin
from ziplan.bench.cuda.cubins import Cubins
from ziplan.bench.cuda.device import KERNELS as NAMES
from ziplan.bench.cuda.device import SEED
from ziplan.bench.measurement import CannotMeasure

OF_CUDA_12 = (70, 75, 80, 86, 89, 90, 100, 120, 121)
OF_CUDA_13 = (75, 80, 86, 89, 90, 100, 103, 110, 120, 121)


@pytest.mark.parametrize(
    ("major", "architecture"),
    [(12, architecture) for architecture in OF_CUDA_12] + [(13, architecture) for architecture in OF_CUDA_13],
)
def test_kernels_compile(major, architecture, tmp_path):
    nvrtc = compiler_of(major)
    if architecture not in nvrtc.architectures:
        pytest.skip(f"NVRTC {nvrtc.version} is too old for sm_{architecture}")
    made = cubin(nvrtc, architecture, Cubins(tmp_path))
    assert made.startswith(b"\x7fELF")
    assert struct.unpack_from("<H", made, 18) == (190,), "EM_CUDA"
    assert all(f"ziplan_{name}\0".encode() in made for name in NAMES)


def test_a_source_with_a_mistake_is_told_with_the_compilers_words():
    nvrtc = compiler_of(13)
    with pytest.raises(CannotMeasure, match="undeclared_thing"):
        nvrtc.compile(b"__global__ void f() { undeclared_thing(); }", ["--gpu-architecture=sm_90"])


def test_no_header_is_included():
    assert b"#include" not in SOURCE.read_bytes()


def on_host(folder, kernels):
    """Run the kernels of a folder as a program of the host that checks itself, under sanitizers."""
    need("g++")
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    warnings = ["-Wall", "-Wextra", "-Werror", "-std=c++17", "-g", "-O1"]
    build(["g++", *warnings, *sanitizers, f"-I{kernels}", FAKE / "check_kernels.cpp", "-o", folder / "check"])
    return subprocess.run([str(folder / "check")], capture_output=True)


MISTAKES = {
    "for (; i < count; i += step) to[i] = from[i];": "",
    "i < count; i += stride()) to[i]": "i <= count; i += stride()) to[i]",
    " || is.w != wanted.w": "",
    "i + 3 * step < count; i += 4 * step) {\n    uint4 a = from[i], b = from[i + step], c": (
        "i + 2 * step < count; i += 4 * step) {\n    uint4 a = from[i], b = from[i + step], c"
    ),
    "atomicAdd(wrong, mine)": "*wrong = mine",
    "*gave_up = 1;": "*gave_up = 0;",
    "^ d.w;": ";",
}
"""Text of the kernels, and what it may be mistaken for."""


@pytest.mark.slow
@pytest.mark.parametrize("right", MISTAKES)
def test_a_mistake_in_a_kernel_is_seen(right, tmp_path):
    source = SOURCE.read_text()
    assert right in source
    (tmp_path / SOURCE.name).write_text(source.replace(right, MISTAKES[right]))
    assert on_host(tmp_path, tmp_path).returncode != 0


@pytest.mark.slow
def test_kernels_on_the_host(tmp_path):
    done = on_host(tmp_path, KERNELS)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    words = struct.unpack(f"<{len(done.stdout) // 4}I", done.stdout)
    for index in (0, 1, 4711, 65535):
        assert words[4 * index : 4 * index + 4] == pattern(index)
    assert len(zlib.compress(done.stdout, 9)) > 0.999 * len(done.stdout), "it must not compress"
    assert max(Counter(words).values()) <= 3, "nor repeat"


def pattern(index):
    """Of one vector: xorshift32 (Marsaglia 2003, triple 13, 17, 5) of its index, and three odd multiples."""
    x = SEED ^ (index * 2654435761 & 0xFFFFFFFF)
    x ^= x << 13 & 0xFFFFFFFF
    x ^= x >> 17
    x ^= x << 5 & 0xFFFFFFFF
    return tuple(x * odd & 0xFFFFFFFF for odd in (1, 2246822519, 3266489917, 668265263))


class Planted(NamedTuple):
    """A compiler as compiler_for sees it."""

    version: Version
    architectures: tuple[int, ...]


NEW = Planted(Version(13, 5), (75, 90, 120))
OLD = Planted(Version(12, 9), (70, 75, 90))


@pytest.mark.parametrize(
    ("architecture", "driver", "wanted"),
    [(90, 13, NEW), (90, 14, NEW), (90, 12, OLD), (70, 13, OLD), (70, 12, OLD), (120, 13, NEW)],
)
def test_the_newest_compiler_that_gpu_and_driver_allow(architecture, driver, wanted):
    assert compiler_for(architecture, driver, [NEW, OLD]) is wanted


@pytest.mark.parametrize(
    ("architecture", "driver", "among", "reason"),
    [
        (120, 12, [NEW, OLD], r"driver of CUDA 13, and this one is of CUDA 12.*sm_120.*ziplan\[cuda12\]"),
        (70, 13, [NEW], r"NVRTC 13.5 does not compile for sm_70: pip install 'ziplan\[cuda12\]'"),
        (130, 13, [NEW, OLD], r"sm_130.*ziplan\[cuda13\]"),
        (90, 13, [], "no NVRTC"),
    ],
)
def test_why_none_serves(architecture, driver, among, reason):
    with pytest.raises(CannotMeasure, match=reason):
        compiler_for(architecture, driver, among)


def test_a_cubin_is_made_once_and_again_where_it_was_damaged(tmp_path):
    cubins, made = Cubins(tmp_path / "cache"), []

    def make():
        made.append(1)
        return b"\x7fELF of " + str(len(made)).encode()

    assert cubins.get(b"key", make) == cubins.get(b"key", make) == b"\x7fELF of 1"
    assert cubins.get(b"other", make) == b"\x7fELF of 2"
    stored = sorted(cubins.folder.iterdir())
    assert len(stored) == 2, "and no temporary file is left"
    for path in stored:
        path.write_bytes(path.read_bytes()[:-1])
    assert cubins.get(b"key", make) == cubins.get(b"key", make) == b"\x7fELF of 3"


def test_a_cache_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    assert Cubins(tmp_path / "file" / "cache").get(b"key", lambda: b"made") == b"made"


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cubins.of_user().folder == tmp_path / "ziplan" / "cubins"
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert Cubins.of_user().folder == tmp_path / ".cache" / "ziplan" / "cubins"
