"""A CUDA driver made of host memory, built by gcc, and runs against it in processes of their own."""

import json
import os
import subprocess
import sys
from importlib import import_module

import pytest
from bench.cuda.built import FAKE, HERE, KERNELS, build, compiler_of, missing, need

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-O2"]


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory):
    """The folder that holds libcuda.so.1."""
    need("gcc", "g++")
    try:
        import_module("cuda.bindings.driver")
    except ImportError:
        missing("cuda-bindings", "cuda13")
    compiler_of(13)
    folder = tmp_path_factory.mktemp("driver")
    for name in ("model", "driver"):
        build(["gcc", *WARNINGS, "-c", FAKE / f"{name}.c", "-o", folder / f"{name}.o"])
    build(["g++", *WARNINGS, f"-I{KERNELS}", "-c", FAKE / "kernels.cpp", "-o", folder / "kernels.o"])
    objects = [folder / f"{name}.o" for name in ("model", "driver", "kernels")]
    name = "-Wl,-soname,libcuda.so.1"
    build(["g++", "-shared", name, *objects, "-o", folder / "libcuda.so.1", "-ldl", "-lm", "-lpthread"])
    return folder


class Outcome(dict):
    """What a run found: a value, a text or the reason why not, by name."""

    def reasons(self):
        """Of what was waived."""
        return {name: found for name, found in self.items() if isinstance(found, str)}


@pytest.fixture
def run(fake_driver, tmp_path_factory):
    """Run a kind of measurement against planted links: `run("host", gpus=2, h2d=2e8)`."""
    cache = tmp_path_factory.getbasetemp() / "cubins"

    def started(kind, *mutations, largest=2**20, library=fake_driver, **planted):
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library),
            "XDG_CACHE_HOME": str(cache),
            "FAKE_CUDA": ";".join(f"{key}={value!r}" for key, value in planted.items()),
        }
        command = [sys.executable, str(HERE / "measure.py"), kind, str(largest), *mutations]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finished(kind, *mutations, **planted):
        process = started(kind, *mutations, **planted)
        out, error = process.communicate(timeout=120)
        assert process.returncode == 0, error[-3000:]
        return Outcome(json.loads(line) for line in out.splitlines())

    finished.started = started
    return finished
