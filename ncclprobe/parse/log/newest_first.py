"""Exports that list the newest line first, as log services do unless asked for another order.

In: the head of a log, then the log. Out: whether it is one; the log turned, and the number of its lines. Lines of
records are counted in the turned log, and given back as they stand in the file.
"""

from array import array
from dataclasses import replace
from itertools import pairwise

from ncclprobe.model.log import LogEvent, OpTrace, Speaker
from ncclprobe.parse.log.clock import Clock
from ncclprobe.parse.log.envelope import unwrap
from ncclprobe.parse.log.stamps import split_stamp

MAX_BYTES = 32 << 20
_LEAST, _MOST = 4, 200  # lines


def is_newest_first(head: bytes) -> bool:
    """Lines that a log service stamped, with falling times and none that rises; a program's own are never so."""
    clock = Clock()
    stamps = (_stamp(line.decode("utf-8", "replace")) for line in head.split(b"\n")[:-1][:_MOST])
    times = (clock.read(stamp) for stamp in stamps if stamp)
    known = [when for when in times if when is not None]
    falls = sum(late < early for early, late in pairwise(known))
    return falls >= _LEAST - 1 and known == sorted(known, reverse=True)


def _stamp(line: str) -> str | None:
    inner = unwrap(line)
    stamped = split_stamp(line) if inner is None else None
    return inner.time if inner is not None else stamped[0] if stamped is not None else None


def turned(data: bytes) -> tuple[bytes, int]:
    """The oldest line first, and how many there are."""
    lines = data.removesuffix(b"\n").split(b"\n")
    return b"\n".join(reversed(lines)) + b"\n", len(lines)


def as_in_file(record: LogEvent | OpTrace | Speaker, count: int) -> LogEvent | OpTrace | Speaker:
    """With the number of the line as an editor shows it."""
    if isinstance(record, LogEvent):
        return replace(record, line=count + 1 - record.line, is_newest_first=True)
    if isinstance(record, Speaker):
        return replace(record, last_line=count + 1 - record.last_line)
    return replace(record, line=array("Q", (count + 1 - line for line in record.line)))
