"""Models built for tests."""

from __future__ import annotations

import pytest

from ziplan.workload.config import model_of
from ziplan.workload.model import Model
from ziplan.workload.shapes import shape_config


def built(config, name="tiny") -> Model:
    """The model that a config describes, which must have no problems."""
    model = model_of(name, config, lambda *problem: pytest.fail(str(problem)))
    assert model is not None
    return model


def shipped(name) -> Model:
    """A shipped shape."""
    return built(shape_config(name), name)


def problems_of(config) -> dict[str, str]:
    """Key to message of everything wrong with a config."""
    found: dict[str, str] = {}

    def note(key, code, message, remedy):
        found[key] = message

    assert (model_of("bad", config, note) is None) == bool(found)
    return found
