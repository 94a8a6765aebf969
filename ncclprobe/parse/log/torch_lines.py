"""What torch's NCCL watchdog and heartbeat monitor print, torch 1.13 to 2.13.

In: lines. Out: timeouts, counters, dump signals, stuck watchdogs, aborted communicators, the exceptions that end them.
"""

import re
from collections.abc import Callable, Iterator

from ncclprobe.model.log import (
    Aborted,
    DumpSignal,
    DumpWritten,
    GilStuck,
    GroupJoined,
    GroupProgress,
    LogEvent,
    OpTrace,
    Raised,
    RemoteError,
    WatchdogStuck,
    WorkTimeout,
    WorldSize,
)
from ncclprobe.parse.log.failures import classify
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.torch_terms import op_named, whole
from ncclprobe.parse.text import clean

_MAX_MESSAGE = 300

# NumelIn and NumelOut since 2.1; other backends have a Work of their own name.
_WORK = re.compile(
    r"Work(?:NCCL|XCCL|HCCL|UCC|MCCL)?\(SeqNum=(?P<seq>\d{1,19}), OpType=(?P<op>\w{1,64})"
    r"(?:, TensorShape=\[[^\]]{0,200}\])?"
    r"(?:, NumelIn=(?P<numel_in>-?\d+))?(?:, NumelOut=(?P<numel_out>-?\d+))?(?:, Timeout\(ms\)=(?P<timeout>\d+))?"
    r"(?:\)(?: ran for (?P<ran>\d+) milliseconds)?)?"
)
_TIMEOUT = re.compile(r"[Cc]aught collective operation timeout|timed out in blocking wait")
_ENQUEUED = re.compile(r"[Ll]ast enqueued (?:NCCL )?work: (-?\d+)")
_STARTED = re.compile(r"[Ll]ast started (?:NCCL )?work: (-?\d+)")
_COMPLETED = re.compile(r"[Ll]ast completed (?:NCCL )?work: (-?\d+)")
_FAILED = re.compile(r"(?:detected by watchdog at work(?: sequence id)?|Timeout at NCCL work): (\d+)")
_JOINED = re.compile(r"initialization options: .{0,60}?\bsize: (?P<size>\d{1,7}), global rank: (?P<rank>\d{1,7})\b")
_DEFAULT_NAME = re.compile(r"PG Name: 0$|\[PG ID 0 PG GUID 0\b")
_SIGNAL = re.compile(
    r"Received a (?:global )?(?:dump|timeout|exception) signal\b.*? from {1,2}"
    r"(?:rank (?P<rank>\d{1,9})|this local rank)"
)
_STUCK = re.compile(r"watchdog got stuck for (\d{1,9}) seconds")
_WRITTEN = re.compile(r"Finished writing (?:NCCLPG|Flight Recorder) debug info to (?P<path>\S+)")
_RANK_AT_END = re.compile(r"(\d{1,9})$")
_REMOTE = re.compile(r"remote error detected from rank: (\d{1,9})")
_ABORTED = re.compile(r"NCCL communicator was aborted(?: on rank (\d{1,9}))?")
_ENDED = re.compile(
    r"(?:watchdog thread terminated with exception: |raised the following async exception: "
    r"|found async exception when checking for NCCL errors: )(?P<message>.*)"
)
_EXCEPTION = re.compile(r"^(?P<name>[A-Za-z_][\w.:]{0,80}(?:Error|Exception)): (?P<message>.*)")

# What torch throws for whatever its watchdog caught.
_WATCHDOG_ERROR = "c10::DistBackendError"

Facts = Iterator[LogEvent]


def _timeouts(line: LogLine) -> Facts:
    work = _WORK.search(line.text) if _TIMEOUT.search(line.text) else None
    if work:
        yield line.event(
            WorkTimeout(
                seq=int(work["seq"]),
                op=op_named(work["op"]),
                numel_in=whole(work["numel_in"]),
                numel_out=whole(work["numel_out"]),
                timeout_ms=whole(work["timeout"]),
                ran_ms=whole(work["ran"]),
            )
        )


def _progress(line: LogLine) -> Facts:
    text = line.text
    enqueued, completed, failed = _ENQUEUED.search(text), _COMPLETED.search(text), _FAILED.search(text)
    if enqueued or completed:
        started = _STARTED.search(text)
        yield line.event(
            GroupProgress(
                last_enqueued=whole(enqueued[1]) if enqueued else None,
                last_completed=whole(completed[1]) if completed else None,
                last_started=whole(started[1]) if started else None,
                failed=whole(failed[1]) if failed else None,
            )
        )


def _joined(line: LogLine) -> Facts:
    """At level INFO only. Before 2.3 the line names no group, and may be of any."""
    found = _JOINED.search(line.text)
    if found:
        size, rank = int(found["size"]), int(found["rank"])
        yield line.event(GroupJoined(size=size), rank=rank)
        if _DEFAULT_NAME.search(line.text.rstrip()):
            yield line.event(WorldSize(size=size), rank=rank)


def _signals(line: LogLine) -> Facts:
    found = _SIGNAL.search(line.text)
    if found:
        yield line.event(DumpSignal(from_rank=int(found["rank"]) if found["rank"] else None))


def _own_signal(line: LogLine) -> Facts:
    yield line.event(DumpSignal(from_rank=None))


def _stuck(line: LogLine) -> Facts:
    found = _STUCK.search(line.text)
    yield line.event(WatchdogStuck(seconds=int(found[1]) if found else None))


def _gil(line: LogLine) -> Facts:
    yield line.event(GilStuck())


def _written(line: LogLine) -> Facts:
    found = _WRITTEN.search(line.text)
    if found:
        path = clean(found["path"].rstrip(".,"))
        rank = _RANK_AT_END.search(path)
        yield line.event(DumpWritten(path=path, rank=int(rank[1]) if rank else None))


def _remote(line: LogLine) -> Facts:
    found = _REMOTE.search(line.text)
    if found:
        yield line.event(RemoteError(from_rank=int(found[1])))


def _aborted(line: LogLine) -> Facts:
    """The text's rank is the communicator's; it counts where the line has no other."""
    found = _ABORTED.search(line.text)
    if found:
        rank = int(found[1]) if found[1] and line.rank is None else line.rank
        yield line.event(Aborted(), rank=rank)


def _ended(line: LogLine) -> Facts:
    found = _ENDED.search(line.text)
    if found:
        message = found["message"].strip()
        named = _EXCEPTION.match(message)
        name, words = (named["name"], named["message"]) if named else (_WATCHDOG_ERROR, message)
        yield line.event(
            Raised(exception=clean(name), message=clean(words, _MAX_MESSAGE), failure=classify(name, message))
        )


_FACTS: tuple[tuple[str, Callable[[LogLine], Facts]], ...] = (
    ("SeqNum=", _timeouts),
    ("last enqueued", _progress),
    ("Last enqueued", _progress),
    ("ProcessGroupNCCL initialization options", _joined),
    ("Received a ", _signals),
    ("to signal dumping", _own_signal),
    ("Broadcasting flight recorder dump signal", _own_signal),
    ("Broadcasting signal exception_dump", _own_signal),
    ("watchdog got stuck for", _stuck),
    ("detects no heartbeat and will finally kill", _stuck),
    ("NCCL monitor thread timeout", _stuck),
    ("Heartbeat monitor timed out", _stuck),
    ("detected no heartbeat of its watchdog", _stuck),
    ("due to ProcessGroupNCCL watchdog hang", _stuck),
    ("Could not acquire GIL within", _gil),
    ("debug info to ", _written),
    ("remote error detected from rank", _remote),
    ("NCCL communicator was aborted", _aborted),
    ("thread terminated with exception: ", _ended),
    ("raised the following async exception: ", _ended),
    ("found async exception when checking for NCCL errors", _ended),
)

# What the lines above share: the file's name in torch's own prefix, or words of those that may stand without one.
NEEDLES = (
    "ProcessGroupNCCL",
    "ProcessGroupXCCL",
    "SeqNum=",
    "NCCL work",
    "watchdog",
    "debug info to ",
    "NCCL communicator was aborted",
    "Could not acquire GIL",
)
BLOCK_NEEDLES = ()


class TorchLines:
    """Each line stands alone."""

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """What the line tells."""
        text, done = line.text, None
        for needle, facts in _FACTS:
            if needle in text and facts is not done:
                done = facts
                yield from facts(line)

    def end(self) -> Iterator[LogEvent | OpTrace]:
        """Nothing is ever open."""
        return iter(())


RECOGNIZER = TorchLines
