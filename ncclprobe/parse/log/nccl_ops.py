"""The operations that processes issued on NCCL communicators, as their debug logs list them.

In: lines of `NCCL_DEBUG_SUBSYS=COLL` (`AllReduce: opCount 26a ... comm 0x55cc2a8635 [nranks=4] stream 0x55a1ad06b6`)
or of `NCCL_DEBUG=TRACE` (`NCCL CALL ncclAllReduce(...)`), and those of the communicators' lives. Out: at the end of
the log, an `OpTrace` for each communicator of each process.

Names and types are those of torch's flight recorder, so that the two can be compared. NCCL prints one count; it stands
for the sizes of both sides.
"""

import re
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from ncclprobe.model.collectives import Signature
from ncclprobe.model.generations import Generations
from ncclprobe.model.log import CommEvent, LogEvent, OpTrace
from ncclprobe.parse.log import nccl_comm
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.nccl_prefix import Hosts, messages
from ncclprobe.parse.text import clean

NEEDLES = (": opCount ", "NCCL CALL nccl", *nccl_comm.NEEDLES)
BLOCK_NEEDLES: tuple[str, ...] = ()

MAX_ROWS = 1_000_000
KEPT_OF_EACH = 64
"""So many of the last rows of a communicator stay, however long ago they were: who stopped early is who matters."""
MAX_TRACES = 50_000
_ROWS_PER_MARK = 1 << 16
_MAX_SIGNATURES = 100_000

_COLL = re.compile(
    r"(?<![\w.\-])(?P<host>[\w.\-]{1,255}):(?P<pid>\d{1,10}):\d{1,10} (?:\[-?\d{1,4}\] )?NCCL INFO (?:\[\d{1,4}\] )?"
    r"(?P<op>\w{1,40}): opCount (?P<op_count>[0-9a-f]{1,16}) sendbuff \S{1,20} recvbuff \S{1,20}"
    r" count (?P<count>\d{1,18}) datatype (?P<type>\d{1,3}) op \d{1,10} root (?P<root>-?\d{1,8})"
    r" comm (?P<comm>0x[0-9a-f]{1,16})(?: \[nranks=(?P<size>\d{1,8})\])?"
)
_CALL = re.compile(
    r"(?<![\w.\-])(?P<host>[\w.\-]{1,255}):(?P<pid>\d{1,10}):\d{1,10} (?:\[-?\d{1,4}\] )?NCCL CALL nccl"
    r"(?P<op>[A-Z]\w{1,40})\((?:0x)?[0-9a-f]{1,16},(?:0x)?[0-9a-f]{1,16},(?P<count>\d{1,18}),(?P<type>\d{1,3}),\d{1,10},"
    r"(?P<root>-?\d{1,8}),(?P<comm>0x[0-9a-f]{1,16}),"
)
_OPS = {
    "AllReduce": "all_reduce",
    "Broadcast": "broadcast",
    "Bcast": "broadcast",
    "Reduce": "reduce",
    "AllGather": "_all_gather_base",
    "AllGatherV": "all_gather",
    "ReduceScatter": "_reduce_scatter_base",
    "AlltoAll": "all_to_all",
    "AllToAll": "all_to_all",
    "Gather": "gather",
    "Scatter": "scatter",
    "Send": "send",
    "Recv": "recv",
}
# ncclDataType_t, in order, as torch's recorder prints the same types.
_TYPES = (
    *("Char", "Byte", "Int", "UInt32", "Long", "UInt64", "Half", "Float", "Double", "BFloat16"),
    *("Float8_e4m3fn", "Float8_e5m2"),
)

_Key = tuple[str, int, str, int, bool]


@dataclass(slots=True)
class _Trace:
    """An `OpTrace` that still grows."""

    numbers: dict[tuple[str, str, str], int] = field(default_factory=dict)
    signature_of: "array[int]" = field(default_factory=lambda: array("I"))
    root: "array[int]" = field(default_factory=lambda: array("q"))
    op_count: "array[int]" = field(default_factory=lambda: array("Q"))
    line: "array[int]" = field(default_factory=lambda: array("Q"))
    size: int | None = None
    left_out: int = 0

    def drop_before(self, line: int) -> int:
        """Forgets rows of earlier lines but for the last few; returns how many."""
        count = max(0, min(bisect_left(self.line, line), len(self.line) - KEPT_OF_EACH))
        for column in (self.signature_of, self.root, self.op_count, self.line):
            del column[:count]
        self.left_out += count
        return count


class NcclOps:
    """Reads one log. `problems` says, at the end, what was left out."""

    def __init__(self) -> None:
        self._hosts = Hosts()
        self._generations = Generations()
        self._events: dict[tuple[str, int, str, int], CommEvent] = {}
        self._traces: dict[_Key, _Trace] = {}
        self._recent: dict[tuple[str, str, str, bool], _Trace] = {}
        self._marks: deque[int] = deque()
        self._rows = 0
        self._unmarked = 0
        self._refused = 0

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """Notes the operations of the line; they are told in the end."""
        text = line.text
        if ": opCount " in text:
            for found in _COLL.finditer(text):
                self._add(found, line.number, int(found["op_count"], 16), is_call=False)
        elif "NCCL CALL nccl" in text:
            for found in _CALL.finditer(text):
                self._add(found, line.number, 0, is_call=True)
        if "- " in text and any(needle in text for needle in nccl_comm.NEEDLES):
            self._note_communicators(text)
        return iter(())

    def end(self) -> Iterator[LogEvent | OpTrace]:
        """One trace for each communicator of each process."""
        for (host, pid, comm, generation, is_call), trace in self._traces.items():
            if is_call and (host, pid, comm, generation, False) in self._traces:
                continue  # the same operations, in fewer words
            event = self._events.get((host, pid, comm, generation))
            yield OpTrace(
                host=clean(host),
                pid=pid,
                comm=comm,
                comm_id=event.comm_id if event else None,
                rank=event.rank if event else None,
                size=event.size if event else trace.size,
                cuda_device=event.cuda_device if event else None,
                signatures=tuple(_signature(*known) for known in trace.numbers),
                left_out=trace.left_out,
                is_call=is_call,
                signature_of=trace.signature_of,
                root=trace.root,
                op_count=trace.op_count,
                line=trace.line,
            )

    @property
    def problems(self) -> tuple[str, ...]:
        """In words, for a person."""
        left_out = sum(trace.left_out for trace in self._traces.values())
        said = []
        if left_out:
            said.append(f"it lists {left_out + self._rows} NCCL operations; the first {left_out} were left out")
        if self._refused:
            said.append(
                f"{self._refused} NCCL operations were left out: it lists too many communicators or kinds of them"
            )
        return tuple(said)

    def _note_communicators(self, text: str) -> None:
        for said in messages(text, self._hosts):
            event = nccl_comm.comm_event(said.message)
            if event is not None and len(self._events) < MAX_TRACES:
                generation = self._generations.of(said.host, said.pid, event)
                self._events.setdefault((said.host, said.pid, event.comm, generation), event)
                self._recent.clear()

    def _add(self, found: re.Match[str], line: int, op_count: int, *, is_call: bool) -> None:
        trace = self._recent.get((found["host"], found["pid"], found["comm"], is_call)) or self._trace(found, is_call)
        kind = (found["op"], found["count"], found["type"])
        if trace is None or (kind not in trace.numbers and len(trace.numbers) >= _MAX_SIGNATURES):
            self._refused += 1
            return
        trace.signature_of.append(trace.numbers.setdefault(kind, len(trace.numbers)))
        trace.root.append(int(found["root"]))
        trace.op_count.append(op_count)
        trace.line.append(line)
        self._rows += 1
        self._unmarked += 1
        if self._unmarked == _ROWS_PER_MARK:
            self._mark(line)

    def _trace(self, found: re.Match[str], is_call: bool) -> _Trace | None:
        pid, comm = int(found["pid"]), found["comm"]
        host = self._hosts.name(found["host"], pid)
        key = (host, pid, comm, self._generations.current(host, pid, comm), is_call)
        trace = self._traces.get(key)
        if trace is None:
            if len(self._traces) >= MAX_TRACES:
                return None
            size = found.groupdict().get("size")
            trace = self._traces[key] = _Trace(size=int(size) if size else None)
        if len(self._recent) < MAX_TRACES:
            self._recent[found["host"], found["pid"], comm, is_call] = trace
        return trace

    def _mark(self, line: int) -> None:
        """Every so many rows; the oldest stretch goes when there are too many rows."""
        self._unmarked = 0
        self._marks.append(line)
        while self._rows > MAX_ROWS and len(self._marks) > 1:
            oldest = self._marks.popleft()
            self._rows -= sum(trace.drop_before(oldest) for trace in self._traces.values())


def _signature(op: str, count: str, kind: str) -> Signature:
    number = int(kind)
    dtype = _TYPES[number] if number < len(_TYPES) else f"type {number}"
    sizes = ((int(count),),)
    return Signature(clean(_OPS.get(op, op)), sizes, sizes, (dtype,), (dtype,))


RECOGNIZER = NcclOps
