"""Work that may never come back ends with the deadline."""

import threading
import time

import pytest

from ncclprobe.collect.transport import HostError
from ncclprobe.collect.transport.deadline import call_until, remaining_s
from ncclprobe.collect.transport.quoting import quoted


def test_the_result_and_the_error_come_through() -> None:
    assert call_until(time.monotonic() + 5, lambda: 7, lambda _: None) == 7
    with pytest.raises(ValueError, match="no"):
        call_until(time.monotonic() + 5, lambda: int("no"), lambda _: None)


def test_what_comes_too_late_is_discarded() -> None:
    go, discarded = threading.Event(), threading.Event()

    def work() -> int:
        go.wait(10)
        return 7

    begin = time.monotonic()
    with pytest.raises(HostError, match="deadline"):
        call_until(begin + 0.1, work, lambda _: discarded.set())
    assert time.monotonic() - begin < 2
    assert not discarded.is_set()
    go.set()
    assert discarded.wait(5)


def test_remaining_seconds() -> None:
    assert 4 < remaining_s(time.monotonic() + 5) <= 5
    with pytest.raises(HostError, match="deadline"):
        remaining_s(time.monotonic())


def test_words_of_a_host_are_one_short_printable_line() -> None:
    assert quoted("a\x1b[31m\nb\tc") == "a?[31m b c"
    assert quoted("x" * 1000, 10) == "xxxxxxx..."
