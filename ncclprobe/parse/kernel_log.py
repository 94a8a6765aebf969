"""The kernel's log: processes killed for memory, errors of GPUs, and what else can stop a rank.

In: a log in any form that `kernel_lines` reads. Out: `KernelEvent`s in order. What the log repeats is there twice at
most, the first time and the last.
"""

from collections import deque
from operator import attrgetter

from ncclprobe.model.errors import ParseError
from ncclprobe.model.kernel import KernelEvent, KernelFault, OomKill, Xid
from ncclprobe.parse import kernel_faults, kernel_oom, xid
from ncclprobe.parse.kernel_lines import MAX_LINE, KernelLine, lines_with
from ncclprobe.parse.parsed import Parsed

MAX_KILLS = 1_000
MAX_KINDS = 2_000
_MAX_WORDS = 20_000
_NEEDLES = (*kernel_oom.NEEDLES, *xid.NEEDLES, *kernel_faults.NEEDLES)


def parse(data: bytes) -> Parsed[KernelEvent]:
    """All events, of a flood the last of each kind; ParseError when the bytes are no text."""
    if b"\0" in data[:MAX_LINE]:
        raise ParseError("not a kernel log: it holds binary data")
    oom, kills, others = kernel_oom.OomReader(), _Kills(), _Others()
    for line in lines_with(data, _NEEDLES):
        kill = oom.kill_in(line)
        if kill is not None:
            kills.add(kill)
        else:
            others.add(line)
    events: list[KernelEvent] = [*kills.kept, *others.events()]
    return Parsed(
        records=tuple(sorted(events, key=attrgetter("line"))), problems=(*kills.problems(), *others.problems())
    )


class _Kills:
    """The last of them."""

    def __init__(self) -> None:
        self.kept: deque[OomKill] = deque(maxlen=MAX_KILLS)
        self._count = 0

    def add(self, kill: OomKill) -> None:
        self._count += 1
        self.kept.append(kill)

    def problems(self) -> tuple[str, ...]:
        problem = f"it tells of {self._count} kills; only the last {MAX_KILLS} were looked at"
        return (problem,) if self._count > MAX_KILLS else ()


class _Others:
    """Of the kinds that came up last the first event and the last: a link can report a million corrected errors."""

    def __init__(self) -> None:
        self._count = 0
        self._first: dict[tuple[object, ...], Xid | KernelFault] = {}
        self._last: dict[tuple[object, ...], KernelLine] = {}
        # The kernel repeats itself to the letter: then there is no need to read it again. None: it is no event.
        self._kinds: dict[tuple[str | None, str], tuple[object, ...] | None] = {}

    def add(self, line: KernelLine) -> None:
        said = (line.host, line.words)
        if said in self._kinds and (kind := self._kinds[said]) in self._first:
            self._last[kind] = line
        elif said not in self._kinds or self._kinds[said] is not None:
            self._read(line)

    def events(self) -> list[Xid | KernelFault]:
        last = (_event_in(line) for line in self._last.values())
        return [*self._first.values(), *(event for event in last if event is not None)]

    def problems(self) -> tuple[str, ...]:
        problem = f"it tells of {self._count} kinds of events; only the last {MAX_KINDS} were looked at"
        return (problem,) if self._count > MAX_KINDS else ()

    def _read(self, line: KernelLine) -> None:
        event = _event_in(line)
        kind = _kind(event) if event is not None else None
        if len(self._kinds) < _MAX_WORDS:
            self._kinds[line.host, line.words] = kind
        if event is None or kind is None:
            return
        if kind in self._first:
            self._last[kind] = line
            return
        self._count += 1
        self._first[kind] = event
        if len(self._first) > MAX_KINDS:
            oldest = next(iter(self._first))
            del self._first[oldest]
            self._last.pop(oldest, None)


def _event_in(line: KernelLine) -> Xid | KernelFault | None:
    return xid.xid_in(line) or xid.sxid_in(line) or kernel_faults.fault_in(line)


def _kind(event: Xid | KernelFault) -> tuple[object, ...]:
    """Events of one kind are repetitions of one another."""
    if isinstance(event, Xid):
        return event.host, event.code, event.bus_id, event.pid
    return event.host, event.kind, event.device, event.pid, event.is_fatal
