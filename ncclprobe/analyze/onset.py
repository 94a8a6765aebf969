"""Since when the job hangs, and whether something else happened about then.

In: `Logs`. Out: the moment at which the first call began that a watchdog gave up; how another moment stands to it.

Kernel logs reach back for weeks, and a fault that the job outlived explains nothing. Logs name no zone, so a fault
whole half-hours away may be of the same moment. A log without a year was read as of 1970: its year is the other's.
"""

from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

from ncclprobe.analyze.logs import Logs
from ncclprobe.model.log import WorkTimeout

_NS = 1_000_000_000
_NO_YEAR = 1970
_ZONE_STEP_S = 1_800
_MAX_ZONE_S = 26 * 3_600  # from UTC-12 to UTC+14
_BEFORE_S = 900.0
_CLOSELY_BEFORE_S = 120.0
_AFTER_S = 60.0


class Nearness(str, Enum):
    """`CLOSE`: about as the hang began. `NEAR`: shortly before, or while it lasted. `UNKNOWN`: a time is missing.

    `SHIFTED`: near, by the clock of another zone.
    """

    CLOSE = "close"
    NEAR = "near"
    SHIFTED = "shifted"
    FAR = "far"
    UNKNOWN = "unknown"

    __str__ = str.__str__

    @property
    def is_far(self) -> bool:
        """Whether it cannot have to do with the hang."""
        return self is Nearness.FAR


@dataclass(frozen=True, slots=True, kw_only=True)
class Onset:
    """`began_ns`: when the first call that was given up began; `ended_ns`: when the last watchdog gave up."""

    began_ns: int
    ended_ns: int


def find_onset(logs: Logs) -> Onset | None:
    """None where no watchdog gave up at a known time."""
    waits = [
        (said.record.when_ns, (work.ran_ms or work.timeout_ms or 0) * 1_000_000)
        for said, work in logs.facts(WorkTimeout)
        if said.record.when_ns is not None
    ]
    if not waits:
        return None
    return Onset(began_ns=min(when - ran for when, ran in waits), ended_ns=max(when for when, _ in waits))


def nearness(when_ns: int | None, onset: Onset | None) -> Nearness:
    """How a moment stands to the hang."""
    if when_ns is None or onset is None:
        return Nearness.UNKNOWN
    before_s = _seconds_between(when_ns, onset.began_ns)
    lasts_s = (onset.ended_ns - onset.began_ns) / _NS
    if -_AFTER_S <= before_s <= _CLOSELY_BEFORE_S:
        return Nearness.CLOSE
    if -lasts_s - _AFTER_S <= before_s <= _BEFORE_S:
        return Nearness.NEAR
    shifted_s = (before_s + _AFTER_S) % _ZONE_STEP_S - _AFTER_S
    is_shifted = abs(before_s) <= _MAX_ZONE_S and shifted_s <= _CLOSELY_BEFORE_S
    return Nearness.SHIFTED if is_shifted else Nearness.FAR


def _seconds_between(one_ns: int, other_ns: int) -> float:
    one, other = (datetime.fromtimestamp(when_ns / _NS, tz=timezone.utc) for when_ns in (one_ns, other_ns))
    if (one.year == _NO_YEAR) == (other.year == _NO_YEAR):
        return (other_ns - one_ns) / _NS
    if one.year == _NO_YEAR:
        return -_seconds_between(other_ns, one_ns)
    return min(((in_year - one).total_seconds() for in_year in _in_years_about(other, one.year)), key=abs)


def _in_years_about(moment: datetime, year: int) -> list[datetime]:
    """The same day in three years, for a night in between may be that of New Year."""
    day = 28 if (moment.month, moment.day) == (2, 29) else moment.day
    return [moment.replace(year=other, day=day) for other in (year - 1, year, year + 1)]
