"""Planted bandwidths come back: from a machine whose links share as a model says, each within 1 %."""

import os
import random
import subprocess
import sys

import pytest
from bench.cuda.built import HERE, compiler_of

from ziplan.simulate.sharing import fair_shares

WITHIN = 0.01


pytestmark = pytest.mark.slow


def near(value):
    return pytest.approx(value, rel=WITHIN)


def test_each_direction_alone_and_both_at_once(run):
    found = run("host", gpus=2, h2d=200e6, d2h=230e6, duplex=300e6, **{"h2d.1": 120e6})
    assert found == {
        "gpu.0.host_to_device": near(200e6),
        "gpu.0.device_to_host": near(230e6),
        "gpu.0.both.host_to_device": near(150e6),
        "gpu.0.both.device_to_host": near(150e6),
        "gpu.1.host_to_device": near(120e6),
        "gpu.1.device_to_host": near(230e6),
        "gpu.1.both.host_to_device": near(120e6),
        "gpu.1.both.device_to_host": near(180e6),
    }


def test_root_ports_that_two_share(run):
    planted = {"h2d": 200e6, "h2d.3": 100e6, "d2h": 200e6, "root_in": 300e6, "root_out": 1e9}
    found = run("together", gpus=4, gpus_per_root=2, **planted)
    assert found == {
        "gpu.all.host_to_device": near(600e6),
        "gpu.0.beside_all.host_to_device": near(150e6),
        "gpu.1.beside_all.host_to_device": near(150e6),
        "gpu.2.beside_all.host_to_device": near(200e6),
        "gpu.3.beside_all.host_to_device": near(100e6),
        "gpu.all.device_to_host": near(800e6),
        **{f"gpu.{index}.beside_all.device_to_host": near(200e6) for index in range(4)},
    }


@pytest.mark.parametrize("seed", range(3))
def test_any_machine_shares_as_the_other_implementation_does(run, seed):
    """Links, root ports and the host's memory, each drawn: against ziplan.simulate's own max-min rates."""
    draw = random.Random(seed)
    count, per_root = draw.randint(2, 6), draw.randint(1, 3)
    own = [draw.uniform(50e6, 300e6) for _ in range(count)]
    roots = [draw.uniform(100e6, 500e6) for _ in range(count)]
    dram = draw.uniform(200e6, 1000e6)
    planted = {f"h2d.{index}": value for index, value in enumerate(own)}
    planted |= {f"root_in.{index}": value for index, value in enumerate(roots)}
    found = run("together", gpus=count, gpus_per_root=per_root, dram=dram, d2h=1e8, **planted)
    capacities = [*own, *roots, dram]
    uses = {
        index: ((index, 1.0), (count + index // per_root, 1.0), (2 * count, 1.0)) for index in range(count)
    }
    shares = fair_shares(uses, capacities)
    for index in range(count):
        assert found[f"gpu.{index}.beside_all.host_to_device"] == near(shares[index].rate)
    assert found["gpu.all.host_to_device"] == near(sum(share.rate for share in shares.values()))


def test_one_gpu_has_nothing_beside_it(run):
    assert run("together") == run("peers") == {}


def test_gpus_to_each_other(run):
    found = run("peers", gpus=3, peer_out=500e6, peer_in=800e6, **{"peer_out.1": 300e6})
    assert found == {
        **{f"gpu.{a}.to.{b}": near(300e6 if a == 1 else 500e6) for a in range(3) for b in range(3) if a != b},
        "gpu.all.to_next": near(300e6),
    }


def test_gpus_without_peer_access_copy_through_the_host(run):
    found = run("peers", gpus=2, peer=0, peer_out=900e6, peer_in=900e6, d2h=150e6, h2d=200e6, dram=240e6)
    assert found["gpu.0.to.1"] == near(120e6), "each byte crosses the host's memory twice"
    assert found["gpu.all.to_next"] == near(60e6)


def test_memory_counts_a_copied_byte_twice(run):
    found = run("memory", gpus=2, memory=2**26, hbm=2e9, **{"hbm.1": 1.5e9})
    for quantity in ("copy", "read", "write"):
        assert found[f"gpu.0.hbm.{quantity}_bandwidth"] == near(2e9)
        assert found[f"gpu.1.hbm.{quantity}_bandwidth"] == near(1.5e9)


def test_which_gpus_there_are(run):
    found = run("facts", gpus=2, memory=2**30)
    assert found == {
        "gpu.count": 2,
        "gpu.0.name": "Planted GPU 0",
        "gpu.0.memory": 2**30,
        "gpu.1.name": "Planted GPU 1",
        "gpu.1.memory": 2**30,
    }


def test_a_driver_without_a_function_that_is_not_needed(run):
    assert run("facts", old=1)["gpu.count"] == 1


@pytest.mark.parametrize("capability", [70, 75, 80, 89, 90, 100, 120])
def test_the_compiler_that_the_gpu_needs_is_found(run, capability):
    """sm_70 needs NVRTC 12, and its cubins load with a driver of CUDA 13."""
    compiler_of(12)
    assert run("facts", capability=capability)["gpu.count"] == 1


def test_a_driver_of_cuda_12_gets_cubins_of_cuda_12(run):
    compiler_of(12)
    assert run("facts", driver=12080)["gpu.count"] == 1


def test_the_table_that_compares_with_torch(fake_driver, tmp_path):
    """The script for a real GPU runs through here too; torch's column is empty without a GPU of its own."""
    root = HERE.parents[1]
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(fake_driver),
        "XDG_CACHE_HOME": str(tmp_path),
        "FAKE_CUDA": "h2d=2e9;d2h=1e9;duplex=2.5e9;hbm=4e9",
        "PYTHONPATH": str(root),
    }
    command = [sys.executable, "-m", "gpu.compare", "--repeats", "2", "--largest", str(2**20)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = {row.split()[0]: row.split()[1:] for row in done.stdout.splitlines() if row.startswith("gpu.0.")}
    assert float(rows["gpu.0.host_to_device"][0]) == near(2.0)
    assert float(rows["gpu.0.hbm.copy_bandwidth"][0]) == near(4.0)
    assert rows["gpu.0.hbm.copy_bandwidth"][-2] == "0.00%", "two repeats that agree"
