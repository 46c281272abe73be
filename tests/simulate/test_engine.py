"""The engine on models of a few tasks, each worked out by hand: exact lists of what starts and ends when."""

import pytest

from ziplan.simulate.engine import Pool, Stuck, Task, play

A, B = 0, 1


def times(played):
    return list(zip(played.start, played.finish, strict=True))


def test_one_task_takes_its_work_over_its_rate():
    assert times(play([Task("t", 6.0, ((A, 1.0),))], [3.0])) == [(0.0, 2.0)]


def test_two_that_share_a_link_go_half_as_fast_until_one_is_done():
    # 2 and 6 units over a link of 2 a second: both at 1 until the first ends at 2, then 4 left at 2.
    played = play([Task("short", 2.0, ((A, 1.0),)), Task("long", 6.0, ((A, 1.0),))], [2.0])
    assert times(played) == [(0.0, 2.0), (0.0, 4.0)]


def test_one_that_comes_later_slows_the_first():
    # `first` does 2 of 6 by t = 1, shares until `late` (2 units, at 1 a second) ends at 3, ends at 4.
    tasks = [
        Task("first", 6.0, ((A, 1.0),)),
        Task("pause", 1.0, ((B, 1.0),)),
        Task("late", 2.0, ((A, 1.0),), after=(1,)),
    ]
    assert times(play(tasks, [2.0, 1.0])) == [(0.0, 4.0), (0.0, 1.0), (1.0, 3.0)]


def test_a_task_over_two_links_goes_at_the_least_of_its_shares_and_leaves_the_rest():
    # Over A (4) and B (1): `both` is held by B at 1, so `other` gets 3 of A.
    played = play([Task("both", 2.0, ((A, 1.0), (B, 1.0))), Task("other", 6.0, ((A, 1.0),))], [4.0, 1.0])
    assert times(played) == [(0.0, 2.0), (0.0, 2.0)]
    assert played.limits == [[(0.0, B)], [(0.0, A)]]


def test_reading_and_writing_take_turns_on_one_device():
    # A drive of 4 units a second to read, 2 to write: side by side both go at 1 / (1/4 + 1/2) = 4/3.
    read, write = Task("read", 4.0, ((A, 1 / 4),)), Task("write", 4.0, ((A, 1 / 2),))
    assert play([read, write], [1.0]).finish == pytest.approx([3.0, 3.0])


def test_tasks_of_one_instant_are_taken_in_the_order_of_their_numbers():
    tasks = [Task(name, 1.0, ((A, 1.0),), takes=((0, 1.0),), gives=((0, 1.0),)) for name in "abc"]
    played = play(tasks, [1.0], [Pool("buffers", 1.0)])
    assert times(played) == [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]
    assert played.ready == [0.0, 0.0, 0.0]
    assert max(level for _, level in played.levels[0]) == 1.0


def test_tokens_go_to_who_came_first_even_when_a_later_one_wants_fewer():
    hold = Task("hold", 1.0, ((A, 1.0),), takes=((0, 2.0),), gives=((0, 2.0),))
    large = Task("large", 1.0, ((A, 1.0),), takes=((0, 3.0),), gives=((0, 3.0),))
    small = Task("small", 1.0, ((A, 1.0),), takes=((0, 1.0),), gives=((0, 1.0),))
    played = play([hold, large, small], [1.0], [Pool("buffers", 3.0)])
    assert times(played) == [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]


def test_a_gauge_makes_nobody_wait_and_counts_what_is_out():
    tasks = [Task("a", 1.0, ((A, 1.0),), takes=((0, 5.0),)), Task("b", 1.0, (), (0,), gives=((0, 5.0),))]
    played = play(tasks, [1.0], [Pool("HBM")])
    assert played.levels == [[(0.0, 5.0), (1.0, 0.0)]]


def test_nothing_to_do_takes_no_time():
    tasks = [Task("a", 0.0, ((A, 1.0),)), Task("b", 0.0, (), (0,)), Task("c", 1.0, ((A, 1.0),), (1,))]
    assert times(play(tasks, [1.0])) == [(0.0, 0.0), (0.0, 0.0), (0.0, 1.0)]


def test_buffers_that_never_come_back_are_said_by_name():
    tasks = [Task("read layer 0", 1.0, ((A, 1.0),), takes=((0, 1.0),))]
    tasks.append(Task("read layer 1", 1.0, ((A, 1.0),), takes=((0, 1.0),)))
    with pytest.raises(Stuck, match="'read layer 1' waits for ever for 1 of 'buffers': 1 of 1 are out"):
        play(tasks, [1.0], [Pool("buffers", 1.0)])
    with pytest.raises(Stuck, match="wait for each other: a, b"):
        play([Task("a", 1.0, (), (1,)), Task("b", 1.0, (), (0,))], [])


def test_the_same_input_gives_the_same_bits():
    tasks = [
        Task(str(n), 1.0 + n % 7 / 3, ((n % 3, 1.0), (3, 0.1)), (n - 5,) if n > 4 else ()) for n in range(200)
    ]
    first, second = (play(tasks, [1.0, 0.7, 0.3, 0.11]) for _ in range(2))
    assert first == second
