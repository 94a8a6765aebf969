"""torch's reports of several lines: who joined which collective, and where a rank issued the one that failed.

In: lines. Out: `DesyncReport`, `Fingerprint`, `BarrierMissing`, and `Raised` with the stack of the failed collective.
"""

import re
from collections.abc import Iterator

from ncclprobe.model.frames import Frame
from ncclprobe.model.log import BarrierMissing, DesyncReport, Failure, Fingerprint, LogEvent, OpTrace, Raised
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.torch_terms import op_named
from ncclprobe.parse.text import clean

_MAX_REPORT_LINES = 2_000
_MAX_RANKS = 100_000
_MAX_FRAMES = 200

# --- TORCH_NCCL_DESYNC_DEBUG (NCCL_DESYNC_DEBUG before 2.2) ---
_AT = re.compile(r"- \[(?P<rank>\d{1,9})\] Timeout at collective: (?P<op>\w{1,64}), #(?P<seq>\d{1,19})")
_NEVER = re.compile(r"ranks \[(?P<ranks>[\d, ]*)\] are the lagging ranks")
_UNFINISHED = re.compile(r"\[(?P<ranks>[\d, ]+)\] joined but didn't finish collective #(?P<seq>\d{1,19})")
_ABSENT = re.compile(r"\[(?P<ranks>[\d, ]+)\] finished collective #\d+, but didn't join collective #(?P<seq>\d{1,19})")
_PART = re.compile(
    r"To our best knowledge|Snapshot of ranks|(?:started|finished) ranks:|\[(?P<ranks>[\d, ]+)\] (?:started|finished)"
)
_RANK_HEAD = re.compile(r"\bRank (\d{1,9})\]?\s*$")

# --- TORCH_DISTRIBUTED_DEBUG=DETAIL: SequenceNumber since 2.1; `SequenceNumber=0OpType=BARRIER` has no comma ---
_MISMATCH = re.compile(
    r"Rank (?P<rank>\d{1,9}) is running (?:inconsistent )?collective: CollectiveFingerPrint\("
    r"(?:SequenceNumber=(?P<seq>\d{1,19}),? ?)?OpType=(?P<op>\w{1,64})"
    r"(?:, TensorShape=\[(?P<shape>[\d, ]*)\])?(?:, TensorDtypes=(?P<dtype>\w+))?"
)
_MISSING = re.compile(r"\bRanks? (?P<ranks>\d{1,9}(?:, ?\d{1,9})*) failed to pass monitoredBarrier")
_REPORTER = re.compile(r"\[Rank (\d{1,9})\]: Rank")

_STACK_HEAD = "Stack trace of the failed collective"
_STACK_FRAME = re.compile(r"^\s*#\d{1,4} (?P<function>.{1,200}?) from (?P<file>.{1,400}):(?P<line>\d{1,9})\s*$")

NEEDLES = (
    "CollectiveFingerPrint",
    "failed to pass monitoredBarrier",
)
BLOCK_NEEDLES = ("Timeout at collective: ", "Stack trace of the failed collective: ")


class _Desync:
    """A report while its lines come in."""

    def __init__(self, line: LogLine, found: "re.Match[str]", rank: int | None) -> None:
        self.line, self.rank = line, rank
        self.op, self.seq = op_named(found["op"]), int(found["seq"])
        self.reporter = int(found["rank"])
        self.absent: set[int] = set()
        self.unfinished: set[int] = set()
        self.others: set[int] = set()
        self.count = 0

    def takes(self, text: str) -> bool:
        """Whether the line belongs to the report; reads it if so."""
        self.count += 1
        if self.count > _MAX_REPORT_LINES:
            return False
        never, unfinished, absent = _NEVER.search(text), _UNFINISHED.search(text), _ABSENT.search(text)
        for found in (never, absent):
            if found:
                self.absent.update(_ranks(found["ranks"]))
        if unfinished:
            self.unfinished.update(_ranks(unfinished["ranks"]))
        part = _PART.search(text)
        if part and part["ranks"]:
            self.others.update(_ranks(part["ranks"]))
        return bool(never or unfinished or absent or part)

    def event(self) -> LogEvent:
        """The report as one event of its first line."""
        fact = DesyncReport(
            op=self.op,
            seq=self.seq,
            reporter=self.reporter,
            absent=tuple(sorted(self.absent)),
            unfinished=tuple(sorted(self.unfinished)),
            members=tuple(sorted({self.reporter, *self.absent, *self.unfinished, *self.others})),
        )
        return self.line.event(fact, rank=self.rank)


class TorchReports:
    """At most one report and one stack are open: torch writes each in one piece."""

    def __init__(self) -> None:
        self._desync: _Desync | None = None
        self._head_rank: int | None = None
        self._stack_line: LogLine | None = None
        self._frames: list[Frame] = []

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """What the line tells, or what it ends."""
        text = line.text
        yield from self._feed_desync(line)
        yield from self._feed_stack(line)
        if "CollectiveFingerPrint(" in text:
            yield from _fingerprint(line)
        if "monitoredBarrier" in text:
            yield from _missing(line)

    def end(self) -> Iterator[LogEvent | OpTrace]:
        """What was open."""
        yield from self._end_desync()
        yield from self._end_stack()

    def _feed_desync(self, line: LogLine) -> Iterator[LogEvent]:
        at = _AT.search(line.text) if "Timeout at collective" in line.text else None
        if self._desync and (at or not self._desync.takes(line.text)):
            yield from self._end_desync()
        if at:
            self._desync = _Desync(line, at, line.rank if line.rank is not None else self._head_rank)
        head = _RANK_HEAD.search(line.text) if "Rank " in line.text else None
        self._head_rank = (line.rank if line.rank is not None else int(head[1])) if head else None

    def _end_desync(self) -> Iterator[LogEvent]:
        if self._desync:
            yield self._desync.event()
        self._desync = None

    def _feed_stack(self, line: LogLine) -> Iterator[LogEvent]:
        frame = _STACK_FRAME.match(line.text) if self._stack_line else None
        if frame and len(self._frames) < _MAX_FRAMES:
            self._frames.append(Frame(clean(frame["function"]), clean(frame["file"]), int(frame["line"])))
            return
        yield from self._end_stack()
        if _STACK_HEAD in line.text and "not found" not in line.text:
            self._stack_line = line

    def _end_stack(self) -> Iterator[LogEvent]:
        if self._stack_line and self._frames:
            fact = Raised(exception="", message=_STACK_HEAD, failure=Failure.COLLECTIVE_ECHO, stack=tuple(self._frames))
            yield self._stack_line.event(fact)
        self._stack_line, self._frames = None, []


def _fingerprint(line: LogLine) -> Iterator[LogEvent]:
    """Only the first half is true: what the reporter itself runs."""
    found = _MISMATCH.search(line.text)
    if not found:
        return
    shape, rank = found["shape"], int(found["rank"])
    fact = Fingerprint(
        rank=rank,
        seq=int(found["seq"]) if found["seq"] else None,
        op=op_named(found["op"]),
        shape=_ranks(shape) if shape is not None else None,
        dtype=clean(found["dtype"] or ""),
    )
    yield line.event(fact, rank=line.rank if line.rank is not None else rank)


def _missing(line: LogLine) -> Iterator[LogEvent]:
    found = _MISSING.search(line.text)
    if found:
        reporter = _REPORTER.search(line.text)
        rank = line.rank if line.rank is not None or not reporter else int(reporter[1])
        yield line.event(BarrierMissing(ranks=_ranks(found["ranks"])), rank=rank)


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.replace(" ", "").split(",")[:_MAX_RANKS] if part and len(part) < 19)


RECOGNIZER = TorchReports
