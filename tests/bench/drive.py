"""A drive of a test's own: a file system on a loop device, where root allows, throttled by the kernel."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

BLKIO = Path("/sys/fs/cgroup/blkio")
UNIFIED = Path("/sys/fs/cgroup")


def _run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def loop(folder, size):
    """A file system of `size` bytes in a file, mounted, and its device; skips where that may not be."""
    if os.geteuid() != 0:
        pytest.skip("a loop device needs root")
    image, place = folder / "image", folder / "mounted"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    device, mounted = "", False
    try:
        try:
            _run("mkfs.ext4", "-q", "-F", str(image))
            device = _run("losetup", "--direct-io=on", "--find", "--show", str(image))
            _run("mount", device, str(place))
            mounted = True
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no loop device here: {getattr(error, 'stderr', '') or error}")
        yield place, device
    finally:
        if mounted:
            subprocess.run(["umount", str(place)], check=False)
        if device:
            subprocess.run(["losetup", "-d", device], check=False)


@contextlib.contextmanager
def throttled(device, read, write, beside=""):
    """This process reads and writes a device at so many B/s at the most, by its control group.

    A second device is throttled in the same group: `beside` says that the group may be there already.
    """
    numbers = os.stat(device).st_rdev
    number = f"{os.major(numbers)}:{os.minor(numbers)}"
    if (BLKIO / "blkio.throttle.read_bps_device").exists():
        home = BLKIO
        limits = {"blkio.throttle.read_bps_device": read, "blkio.throttle.write_bps_device": write}
        lines = {name: f"{number} {rate}" for name, rate in limits.items()}
    elif "io" in _text(UNIFIED / "cgroup.subtree_control").split():
        home, lines = UNIFIED, {"io.max": f"{number} rbps={read} wbps={write}"}
    else:
        pytest.skip("no control group here throttles drives")
    group = home / f"ziplan-test-{os.getpid()}"
    try:
        group.mkdir(exist_ok=bool(beside))
        for name, line in lines.items():
            (group / name).write_text(line)
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"drives may not be throttled here: {error}")
    try:
        yield
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):
            group.rmdir()


def _text(path):
    return path.read_text() if path.exists() else ""


def used(folder):
    """Bytes of the files in a folder: those that it lists, and those without a name that a process has open.

    Not what its file system says is in use: other tests write to the same one.
    """
    home, found = os.path.realpath(folder), {}
    opened = (each for process in Path("/proc").glob("[0-9]*") for each in _listed(process / "fd"))
    for path in (*_listed(Path(home)), *opened):
        with contextlib.suppress(OSError):
            if path.parent == Path(home) or os.readlink(path).startswith(f"{home}/"):
                state = path.stat()
                found[state.st_dev, state.st_ino] = state.st_blocks * 512
    return sum(found.values())


def _listed(folder):
    """What is in a folder; nothing where it is gone, or another user's."""
    with contextlib.suppress(OSError):
        return list(folder.iterdir())
    return []
