"""Slow work that will end, in a job whose timeout is shorter.

In: what ranks are doing, and the lines of those who gave up waiting. Out: whether the timeout is what is wrong.
"""

from ncclprobe.analyze.logs import Said
from ncclprobe.analyze.whereabouts import Whereabouts
from ncclprobe.model.log import Activity, WorkTimeout

_DEFAULT_MS = 600_000  # torch's own for NCCL since 2.2; longer ones were chosen for slow steps


def is_slow_work(where: Whereabouts, waiting: list[Said]) -> bool:
    """Whether counted work of a known length goes on after a timeout that somebody set below the default."""
    timeouts = [said.record.what.timeout_ms for said in waiting if isinstance(said.record.what, WorkTimeout)]
    short = [timeout_ms for timeout_ms in timeouts if timeout_ms is not None and timeout_ms < _DEFAULT_MS]
    return bool(short) and bool(where.activities) and all(_goes_on(said, waiting) for said in where.activities)


def _goes_on(said: Said, waiting: list[Said]) -> bool:
    """A step of the work was finished after the first of the others gave up, and its end is known."""
    what, when_ns = said.record.what, said.record.when_ns
    gave_up = [other.record.when_ns for other in waiting if other.record.when_ns is not None]
    has_end = isinstance(what, Activity) and what.progress is not None and what.progress[0] < what.progress[1]
    return has_end and when_ns is not None and bool(gave_up) and when_ns > min(gave_up)
