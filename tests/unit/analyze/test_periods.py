"""What a group's own history says comes next."""

import pytest

from ncclprobe.analyze.periods import continuations, expect, find_period


@pytest.mark.parametrize(
    ("history", "period"),
    [
        ([1, 2, 3] * 4, 3),
        ([1] * 5, 1),
        ([9, 9, 1, 2, 1, 2, 1, 2], 2),
        ([1, 2, 3, 4], None),
        ([], None),
        ([1, 2, 1, 2], None),
    ],
)
def test_the_period_is_the_shortest_that_repeats_three_times(history: list[int], period: int | None) -> None:
    assert find_period(history) == period


def test_what_always_followed_the_same_run_is_next() -> None:
    step, logged = [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 9]
    expected = expect([*step, *logged, *step, *logged, 1, 2, 3, 4])
    assert expected is not None
    assert expected.token == 5


def test_equal_calls_within_a_step_are_no_period_of_the_job() -> None:
    expected = expect([1, 2, 5, 5, 5, 3] * 4 + [1, 2, 5, 5, 5])
    assert expected is not None
    assert (expected.token, 1 in expected.later) == (3, True)


def test_a_short_history_may_still_have_a_period() -> None:
    expected = expect([1, 2] * 3 + [1])
    assert expected is not None
    assert (expected.token, expected.later, expected.basis[-8:]) == (2, {1}, "period 2")


def test_where_steps_differ_the_period_tells_what_most_do() -> None:
    step, logged = [1, 2, 3], [1, 2, 3, 9]
    expected = expect([*logged, *step * 3, *logged, *step * 3, *logged, *step * 3])
    assert expected is not None
    assert expected.token == 1


def test_a_run_that_went_on_in_two_ways_tells_nothing() -> None:
    assert expect([1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 7, 8, 1, 2, 3, 4]) is None


def test_the_longest_run_that_came_twice_decides() -> None:
    assert continuations([1, 2, 3, 4, 5] * 3)[0][:2] == [1, 2]
    assert continuations([]) == []
