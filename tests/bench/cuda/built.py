"""Where the fake driver and the shipped kernels lie, and the compilers that build them."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FAKE = HERE / "fake"
KERNELS = HERE.parents[2] / "ziplan" / "bench" / "cuda"


def need(*commands):
    """Skip without these compilers."""
    for command in commands:
        if shutil.which(command) is None:
            pytest.skip(f"needs {command}")


def build(command):
    """Run a compiler, with its words where it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
