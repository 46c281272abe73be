"""Max-min fairness, for any tasks over any links."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziplan.simulate.sharing import alone, fair_shares

LINKS = 5
rates = st.floats(0.01, 100.0)


@st.composite
def sharings(draw):
    capacities = draw(st.lists(rates, min_size=LINKS, max_size=LINKS))
    count = draw(st.integers(1, 8))
    tasks = {}
    for task in range(count):
        links = draw(st.sets(st.integers(0, LINKS - 1), min_size=1))
        tasks[task] = tuple((link, draw(st.sampled_from([0.25, 1.0, 2.0]))) for link in sorted(links))
    return tasks, capacities


def used(tasks, shares, link):
    return sum(
        taken * shares[task].rate for task, uses in tasks.items() for place, taken in uses if place == link
    )


@given(sharings())
def test_no_link_gives_more_than_it_has(sharing):
    tasks, capacities = sharing
    shares = fair_shares(tasks, capacities)
    for link in range(LINKS):
        assert used(tasks, shares, link) <= capacities[link] * (1 + 1e-9)


@given(sharings())
def test_each_task_is_held_by_a_full_link_on_which_nobody_is_faster(sharing):
    """The definition of max-min fairness: raising one task would lower one that has no more."""
    tasks, capacities = sharing
    shares = fair_shares(tasks, capacities)
    assert set(shares) == set(tasks)
    for task, share in shares.items():
        assert share.link in dict(tasks[task])
        assert used(tasks, shares, share.link) == pytest.approx(capacities[share.link], rel=1e-9)
        others = [other for other, uses in tasks.items() if share.link in dict(uses)]
        assert share.rate >= max(shares[other].rate for other in others) * (1 - 1e-9)


@given(sharings())
def test_a_task_with_nobody_beside_it_gets_what_it_gets_alone(sharing):
    tasks, capacities = sharing
    assert fair_shares({0: tasks[0]}, capacities)[0].rate == pytest.approx(alone(tasks[0], capacities).rate)


@given(sharings(), st.randoms())
def test_the_order_of_the_tasks_does_not_matter(sharing, random):
    tasks, capacities = sharing
    names = list(tasks)
    random.shuffle(names)
    shares, again = fair_shares(tasks, capacities), fair_shares({n: tasks[n] for n in names}, capacities)
    assert all(again[task].rate == pytest.approx(shares[task].rate, rel=1e-9) for task in tasks)
