"""A rank's own past tells whether it left its path."""

import pytest

from ncclprobe.analyze.departures import Course, course_of
from ncclprobe.analyze.heads import find_heads
from ncclprobe.model.report import Cause
from tests.evidence import dumps, recording

STEP = ["gather:1", "scatter:2", "norm:3", "loss:4", "step:5"]
LOGGED = [*STEP, "log:6"]


@pytest.mark.parametrize(
    ("last", "cause"),
    [(["gather:1"], None), (["scatter:2"], Cause.COLLECTIVE_SKIPPED), (["stranger:9"], Cause.COLLECTIVE_EXTRA)],
)
def test_the_next_call_is_the_one_that_came_next_before(last: list[str], cause: Cause | None) -> None:
    made = recording(STEP * 3 + LOGGED + STEP * 3 + last)
    head = find_heads(dumps({0: made}))[0]
    assert course_of(head, made) == Course(is_kept=cause is None, departure=cause)


def test_a_past_too_short_tells_nothing() -> None:
    made = recording(["a", "b", "c"])
    head = find_heads(dumps({0: made}))[0]
    assert course_of(head, made) == Course()
