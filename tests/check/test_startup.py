"""What `ziplan check` imports: the allowed packages, and of ziplan what the question needs."""

import json
import sys
from pathlib import Path

import pytest
from check.asked import BASE, CPU, changed
from test_imports import ALLOWED, RUN, imported, modules

ASKED = ("llama-3.1-8b", "dgx-a100-80g", "--sequence-length", "2048", "--checkpointing", "full")


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(changed(BASE, CPU)))
    return path


@pytest.mark.parametrize("form", ["text", "json", "sarif", "html", "junit"])
def test_imports_only_what_is_allowed(config, form):
    command = ["check", str(config), *ASKED, "--format", form]
    found = imported(RUN, *command) - imported("pass") - set(sys.stdlib_module_names)
    built = ("_sysconfigdata", "_cython", "cython_runtime")
    assert not {name for name in found - ALLOWED if not name.startswith(built)}


def test_a_check_loads_no_other_runtime_and_no_measurements(config):
    found = modules(RUN, "check", str(config), *ASKED)
    others = ("ziplan.runtimes.fsdp", "ziplan.runtimes.ideal", "ziplan.study")
    assert not {name for name in found if name.startswith(others)}


def test_a_fit_and_the_help_load_no_rule():
    example = Path(__file__).parents[2] / "examples" / "quickstart"
    fit = ["fit", str(example / "model.yaml"), str(example / "cluster.yaml")]
    for command in (fit, ["--help"]):
        assert not {name for name in modules(RUN, *command) if name.startswith("ziplan.check")}
