"""The moment until which a host may take its time.

In: a `time.monotonic()` moment, and work that may never come back. Out: its result, or the `HostError` that says that
the time is over.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from ncclprobe.collect.transport import HostError

T = TypeVar("T")


def remaining_s(deadline: float) -> float:
    """Seconds until the deadline, more than none; HostError once it has passed."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise deadline_error()
    return left_s


def deadline_error() -> HostError:
    """What every call says after the deadline."""
    return HostError(
        "the deadline passed before the host had answered in full", "allow more time with --deadline, or try again"
    )


def call_until(deadline: float, work: Callable[[], T], discard: Callable[[T], None]) -> T:
    """The result of `work`, which runs in a thread of its own; HostError when it is not there by the deadline.

    What it still yields after that goes to `discard`. What it raises is raised here.
    """
    call = _Call(work, discard)
    threading.Thread(target=call.run, name="call until deadline", daemon=True).start()
    return call.result(deadline)


class _Call(Generic[T]):
    def __init__(self, work: Callable[[], T], discard: Callable[[T], None]) -> None:
        self._work = work
        self._discard = discard
        self._lock = threading.Lock()
        self._is_done = threading.Event()
        self._is_abandoned = False
        self._results: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
            self._error = error
        else:
            with self._lock:
                self._results.append(result)
                is_late = self._is_abandoned
            if is_late:
                self._discard(result)
        self._is_done.set()

    def result(self, deadline: float) -> T:
        try:
            self._is_done.wait(remaining_s(deadline))
        finally:
            with self._lock:
                self._is_abandoned = not self._results
        if self._results:
            return self._results[0]
        raise self._error or deadline_error()
