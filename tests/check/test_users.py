"""Users' cases: each is whole, `check` says what happened as often as aimed at, the page is fresh."""

from collections import Counter
from pathlib import Path

import pytest
from check.users import ENDS, FEW_TOKENS, all_told, told_of, users
from check.users_page import page_of, standing, summary

PAGE = Path(__file__).parents[2] / "docs" / "cases.md"
USERS = users()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return list(all_told(tmp_path_factory.mktemp("users")))


def test_every_report_is_there_once():
    assert not [name for name, count in Counter(each.id for each in USERS).items() if count > 1]
    assert len({each.report for each in USERS}) == 131
    assert {each.ended for each in USERS} <= set(ENDS)


@pytest.mark.parametrize("user", USERS, ids=lambda each: each.id)
def test_a_case_is_whole(user):
    assert user.url.startswith("https://")
    assert user.said
    restated = bool(user.configs or user.accelerate)
    assert restated != bool(user.left_out)
    if restated and not user.tells:
        assert user.judged_tiers, "no memory is stated, and no finding is asked for"


@pytest.mark.slow
def test_the_aims_are_met(told):
    shares = {
        name: some / of for name, (some, of) in summary([t for t in told if not t.user.left_out]).items()
    }
    assert shares["configs"] >= 0.95
    assert shares["memory"] >= 0.85
    assert shares["close"] < 1 / 3


@pytest.mark.slow
def test_a_miss_has_its_reason_and_nothing_else_has(told):
    assert {each.user.id for each in told if each.judged == "miss"} == {
        each.id for each in USERS if each.miss
    }


@pytest.mark.slow
def test_the_page_is_fresh(told):
    assert PAGE.read_text(encoding="utf-8") == page_of(told), "docs/cases.md is stale: run `make docs`"


def test_what_is_not_stated_is_open(tmp_path):
    (user,) = (each for each in USERS if each.id == "ds-2797")
    run = told_of(user, tmp_path)
    assert standing(run) == "open"
    assert run.open == ("length",)
    assert run.least[0].case.workload.training.sequence_length == FEW_TOKENS
    assert run.least[0].case.memory["hbm"].low < run.most[0].case.memory["hbm"].high
