"""The wall clock of a line of a log, in any of the forms that loggers, launchers and torch print.

In: the head of a line. Out: ns since 1970 of the writer's own clock, read as if it were UTC, for no log says its zone;
only where a line names one itself (`Z`, `UTC`, `+02:00`) the time is converted to UTC.
"""

import datetime
import re
from functools import lru_cache

MAX_HEAD = 200
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_UNDATED_YEAR = 1970
_DATE_BEFORE, _DATE_BEHIND = 16, 40
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_DAY_NS = 86_400 * 10**9

_SOME_TIME = re.compile(r"\d:\d\d:\d\d")
_DATED = re.compile(
    r"(?<!\d)(?P<year>(?:19|20)\d\d)[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T_ ]+(?P<time>\d\d:\d\d:\d\d)"
    r"(?:[.,](?P<part>\d{1,9}))?(?P<zone>Z| ?UTC| ?[+-]\d\d:?(?:00|15|30|45)(?!\d))?"
)
_SLASHED = re.compile(
    r"(?<![\d/])(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>(?:20)?\d\d),? (?P<time>\d\d:\d\d:\d\d)"
    r"(?:[.,](?P<part>\d{1,9}))?"
)
_NAMED = re.compile(
    r"(?<!\w)(?P<name>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) (?P<time>\d\d:\d\d:\d\d)(?:\.(?P<part>\d{1,9}))?"
    r"(?: [A-Z]{2,5})?(?: (?P<year>20\d\d)(?!\d))?"
)
# torch's C++ logger prints the month without a leading zero (`E901`), Python's with one (`E0901`).
_C10 = re.compile(r"(?<!\w)[DIWEF](?P<month>\d{1,2})(?P<day>\d\d) (?P<time>\d\d?:\d\d:\d\d)\.(?P<part>\d{1,9})")
_MONTH_DAY = re.compile(
    r"(?<![\d/-])(?P<month>\d\d)[-/](?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?"
)
_FORMS = (_C10, _DATED, _SLASHED, _NAMED, _MONTH_DAY)


class Clock:
    """Reads times of one log in order: a line without a year has that of the nearest dated line before it, else after.

    `near_ns` is a time of the log that is known to begin with, if any.
    """

    def __init__(self, near_ns: int | None = None) -> None:
        self._near_ns = near_ns

    def read(self, text: str) -> int | None:
        """The first time in the head of a line; None when there is none."""
        for some in _SOME_TIME.finditer(text, 0, MAX_HEAD):
            found = _around(text, some.start())
            when = self._when(found) if found else None
            if when is not None:
                self._near_ns = when
                return when
        return None

    def _when(self, found: "re.Match[str]") -> int | None:
        fields = found.groupdict()
        year, month, day = _date(fields)
        if year is not None:
            return _ns(year, month, day, fields)
        if self._near_ns is None:
            return _ns(_UNDATED_YEAR, month, day, fields)
        near_year = datetime.date.fromordinal(_EPOCH_DAY + self._near_ns // _DAY_NS).year
        years = [_ns(near_year + step, month, day, fields) for step in (0, -1, 1)]
        return min((when for when in years if when is not None), key=self._distance, default=None)

    def _distance(self, when_ns: int) -> int:
        return abs(when_ns - (self._near_ns or 0))


def first_dated_ns(text: str) -> int | None:
    """The first time with a year in a longer text."""
    for found in _DATED.finditer(text):
        fields = found.groupdict()
        year, month, day = _date(fields)
        when = _ns(year or _UNDATED_YEAR, month, day, fields)
        if when is not None:
            return when
    return None


def _around(text: str, place: int) -> "re.Match[str] | None":
    """The form that the time at this place is part of; `5:20` of `05:20:03` is where its place is."""
    start = max(0, place - _DATE_BEFORE)
    return next(filter(None, (form.search(text, start, place + _DATE_BEHIND) for form in _FORMS)), None)


def _date(fields: dict[str, str | None]) -> tuple[int | None, int, int]:
    """Year if the line has one, month and day. `13/01/2026` can only be the day first."""
    name, year = fields.get("name"), fields.get("year")
    if name is not None:
        month = _MONTHS.index(name.lower()) + 1 if name.lower() in _MONTHS else 0
    else:
        month = int(fields["month"] or 0)
    day = int(fields["day"] or 0)
    if month > 12 >= day:
        month, day = day, month
    return (int(year) + (2000 if len(year) == 2 else 0) if year else None), month, day


def _ns(year: int, month: int, day: int, fields: dict[str, str | None]) -> int | None:
    days = _days(year, month, day)
    hour, minute, second = map(int, (fields["time"] or "").split(":"))
    if days is None or hour > 23 or minute > 59 or second > 60:
        return None
    seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - _offset_s(fields.get("zone"))
    return seconds * 10**9 + int((fields.get("part") or "0").ljust(9, "0"))


@lru_cache(maxsize=1024)
def _days(year: int, month: int, day: int) -> int | None:
    try:
        return datetime.date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def _offset_s(zone: str | None) -> int:
    digits = (zone or "").strip().replace(":", "")
    if len(digits) != 5:
        return 0
    seconds = int(digits[1:3]) * 3_600 + int(digits[3:5]) * 60
    return -seconds if digits[0] == "-" else seconds
