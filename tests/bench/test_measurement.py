"""Sampling: warm-up, spread, the second try; rates from the times of operations."""

import threading
import time

import numpy as np
import pytest

from ziplan.bench.measurement import (
    CannotMeasure,
    Sampling,
    Window,
    relative_spread,
    sampled,
    summary,
)
from ziplan.bench.timeline import at_once, operations, slices_of, steady


def windows(*rates):
    """Windows of these rates, the last one for ever; and how many were taken."""
    taken = []

    def window():
        taken.append(rates[min(len(taken), len(rates) - 1)])
        return Window(taken[-1] * 2.0, 2.0)

    return window, taken


def test_a_summary_has_the_median_and_quartiles_by_linear_interpolation():
    found = summary("a", "B/s", [1.0, 2.0, 3.0, 4.0, 10.0], "by hand")
    assert (found.median, found.iqr, found.minimum, found.maximum, found.n) == (3.0, 2.0, 1.0, 10.0, 5)
    assert found.unstable
    assert relative_spread(found) == pytest.approx(2 / 3)


def test_one_value_has_no_spread():
    found = summary("a", "B", [7.0], "told")
    assert (found.median, found.iqr, found.n, found.unstable) == (7.0, 0.0, 1, False)


def test_nothing_is_no_measurement():
    with pytest.raises(CannotMeasure):
        summary("a", "B/s", [], "")


def test_warm_up_ends_when_two_windows_agree():
    window, taken = windows(10, 50, 90, 100, 101, 100)
    found = sampled("a", "B/s", window, "m")
    # 100 and 101 agree: five windows, then seven samples.
    assert len(taken) == 5 + 7
    assert found.minimum == 100


def test_warm_up_ends_after_ten_windows_whatever_they_are():
    rising = [10 * 2**index for index in range(10)]
    window, taken = windows(*rising, 7)
    found = sampled("a", "B/s", window, "m")
    assert len(taken) == 10 + 7
    assert (found.median, found.n) == (7, 7)


def test_unstable_windows_are_taken_once_more_and_the_steadier_are_told():
    window, taken = windows(100, 100, *[50, 150, 50, 150, 50, 150, 50], *[100] * 7)
    found = sampled("a", "B/s", window, "m")
    assert len(taken) == 2 + 7 + 7
    assert (found.median, found.unstable) == (100, False)
    window, taken = windows(100, 100, *[50, 150] * 20)
    assert sampled("a", "B/s", window, "m", Sampling(retry=False)).unstable
    assert len(taken) == 2 + 7


def test_operations_over_an_edge_count_by_their_share():
    # Two threads of operations of 0.4 s, 100 each: 500 a second, however the slices fall.
    times = [(begin, begin + 0.4) for start in (0.0, 0.2) for begin in np.arange(start, 4, 0.4)]
    rates = operations(times, 100.0).rates(0.2, 4.0, 13)
    assert rates == pytest.approx([500.0] * 13)


def test_a_pause_is_seen_where_it_is():
    times = [(0.0, 1.0), (2.0, 3.0)]
    assert operations(times, 10.0).rates(0.0, 3.0, 3) == pytest.approx([10.0, 0.0, 10.0])


def test_the_steady_part_begins_with_the_second_of_two_that_agree():
    assert steady([10, 50, 100, 101, 99, 100, 100, 101, 100, 100], 5) == [101, 99, 100, 100, 101, 100, 100]
    # Never two that agree: what is left are the samples that were asked for.
    assert steady([1, 2, 4, 8, 16, 32, 64, 128], 3) == [32, 64, 128]
    assert steady([1, 2], 7) == [1, 2]


def test_no_slice_is_shorter_than_a_window():
    assert slices_of(1.0, 0.001) == 20
    assert slices_of(1.0, 0.25) == 4
    assert slices_of(0.01, 0.25, least=7) == 7


def test_threads_begin_together_and_what_one_raises_is_raised():
    here = []

    def maker():
        here.append(threading.get_ident())

        def step():
            time.sleep(0.01)
            return True

        return step

    done = at_once([maker] * 3, 0.1)
    assert len(set(here)) == 3
    assert done.full == pytest.approx(0.1)
    assert all(worker[0][0] >= 0 for worker in done.workers)

    def breaks():
        raise CannotMeasure("no memory")

    with pytest.raises(CannotMeasure, match="no memory"):
        at_once([maker, breaks], 0.05)


def test_time_counts_until_the_first_has_nothing_left():
    def short():
        left = iter(range(3))

        def step():
            time.sleep(0.01)
            return next(left, None) is not None

        return step

    def long():
        def step():
            time.sleep(0.01)
            return True

        return step

    done = at_once([short, long], 0.5)
    assert done.full < 0.4
    assert len(done.workers[0]) == 3
