"""Where the fake driver and the shipped kernels lie, and the compilers that build them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ziplan.bench.cuda.compiler import compilers

HERE = Path(__file__).parent
FAKE = HERE / "fake"
KERNELS = HERE.parents[2] / "ziplan" / "bench" / "cuda"


def need(*commands):
    """Skip without these compilers."""
    for command in commands:
        if shutil.which(command) is None:
            pytest.skip(f"needs {command}")


def missing(what, extra):
    """Skip without what an extra brings; continuous integration has it, and there it is a failure."""
    message = f"needs {what}, as the extra {extra} brings it"
    if os.environ.get("CI") and sys.platform == "linux":
        pytest.fail(message)
    pytest.skip(message)


def compiler_of(major):
    """The NVRTC of a CUDA version."""
    found = [nvrtc for nvrtc in compilers() if nvrtc.version.major == major]
    return found[0] if found else missing(f"an NVRTC of CUDA {major}", f"cuda{major}")


def build(command):
    """Run a compiler, with its words where it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
