"""What is shipped: the versions that tests pin, the wheel's contents, the Makefile's targets."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import ziplan

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The names in the wheel that the checkout builds, without a build environment of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("ziplan-*.whl")
    with zipfile.ZipFile(path) as archive:
        return path.name, archive.namelist()


@pytest.mark.slow
def test_wheel_is_pure_and_carries_the_version(wheel):
    assert wheel[0] == f"ziplan-{ziplan.__version__}-py3-none-any.whl"


@pytest.mark.slow
def test_wheel_carries_every_profile_and_module(wheel):
    sources = [
        (ROOT / "ziplan", "ziplan", "*.py"),
        (ROOT / "hardware_profiles", "ziplan/hardware_profiles", "*.yaml"),
        (ROOT / "ziplan", "ziplan", "*.yaml"),
    ]
    wanted = {
        f"{inside}/{path.relative_to(folder).as_posix()}"
        for folder, inside, pattern in sources
        for path in folder.rglob(pattern)
    }
    assert not wanted - set(wheel[1])
    assert "ziplan/py.typed" in wheel[1]


@pytest.mark.slow
def test_wheel_carries_nothing_else(wheel):
    tops = {name.split("/")[0] for name in wheel[1]}
    assert tops == {"ziplan", f"ziplan-{ziplan.__version__}.dist-info"}


def test_changelog_names_the_version():
    assert f"## {ziplan.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_readme_and_ci_run_targets_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for file in ("README.md", ".ci/run"):
        used = set(re.findall(r"^(?:\$ )?make ([a-z-]+)", (ROOT / file).read_text(), re.MULTILINE))
        assert used
        assert not used - targets


def test_ci_runs_the_test_command_of_the_readme():
    assert "$ make test" in (ROOT / "README.md").read_text()
    assert re.search(r"^make test$", (ROOT / ".ci/run").read_text(), re.MULTILINE)


def test_no_file_names_a_package_index():
    """Where packages come from is the business of the machine that installs them."""
    files = [ROOT / name for name in ("pyproject.toml", "Makefile", ".ci/run")]
    assert not [file for file in files if re.search(r"index-url|--find-links|https?://", file.read_text())]
