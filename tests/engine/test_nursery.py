"""The nursery: runs that cannot see each other, and ends that are told."""

import pytest

from engine import nursery

pytestmark = pytest.mark.engine


def test_runs_start_alike_whatever_ran_before(tmp_path):
    found = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        found += nursery.run("engine.puppet", [{"do": name}, {"do": name}], tmp_path / name)
    assert [each["touched"] for each in found] == [["first"], ["first"], ["second"], ["second"]]
    assert [each["folder"] for each in found[:2]] == [str(tmp_path / "first" / f"rank{i}") for i in (0, 1)]
    assert len({each["parent"] for each in found}) == 1


@pytest.mark.parametrize(
    ("do", "status", "said"), [("fail", 1, "as it was told"), ("die", -6, "told to die")]
)
def test_a_worker_that_ends_badly_says_how(tmp_path, do, status, said):
    with pytest.raises(nursery.RunFailed, match=said) as failure:
        nursery.run("engine.puppet", [{"do": "well"}, {"do": do}], tmp_path)
    assert (failure.value.rank, failure.value.status) == (1, status)


def test_a_worker_that_takes_too_long_is_ended_and_the_next_one_runs(tmp_path):
    (tmp_path / "long").mkdir()
    with pytest.raises(nursery.RunFailed, match="too long") as failure:
        nursery.run("engine.puppet", [{"do": "wait"}], tmp_path / "long", timeout=0.2)
    assert failure.value.status is None
    assert nursery.run("engine.puppet", [{"do": "well"}], tmp_path)[0]["touched"] == ["well"]
