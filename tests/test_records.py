"""Every part of every file: a number in it is a finite number."""

import importlib
import math
import pkgutil

import pytest
from pydantic import ValidationError

import ziplan
from ziplan.files.record import FileRecord, _kinds, adding_up


def every_record(base=FileRecord):
    for kind in base.__subclasses__():
        yield kind
        yield from every_record(kind)


def numbers():
    for module in pkgutil.walk_packages(ziplan.__path__, "ziplan."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for kind in sorted(every_record(), key=lambda kind: (kind.__module__, kind.__name__)):
        for name, field in kind.model_fields.items():
            kinds = set(_kinds(field.annotation))
            if kinds & {int, float} and bool not in kinds:
                yield pytest.param(kind, field.alias or name, id=f"{kind.__name__}.{name}")


@pytest.mark.parametrize(("kind", "name"), list(numbers()))
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, True, {"hbm": math.nan}, {"hbm": math.inf}])
def test_a_number_is_a_finite_number(kind, name, value):
    with pytest.raises(ValidationError) as refused:
        kind.model_validate({name: value})
    assert name in {error["loc"][0] for error in refused.value.errors()}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"dram": 2.0, "hbm": -1.0}, "between 0 and 1, dram has 2"),
        ({"dram": math.nan}, "between 0 and 1, dram has nan"),
        ({"dram": 0.5, "hbm": 0.4}, "add up to 1, these add up to 0.9"),
        ({}, "add up to 1, these add up to 0"),
    ],
)
def test_fractions_are_parts_of_a_whole(parts, said):
    with pytest.raises(ValueError, match=said):
        adding_up(parts)
