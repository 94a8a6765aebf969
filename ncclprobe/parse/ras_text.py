"""RAS reports as text, NCCL 2.24 to 2.30.

In: the text, with whatever a person put around it. Out: `RasReport`s. A text report lists members by name only where
they are few; it says of the others how many there are. It names no communicator that is well: that has no id here.

2.24 and 2.25 count all operations together; here that is the operation `collective`.
"""

import re
from dataclasses import dataclass, field

from ncclprobe.model.ras import RasCommunicator, RasCount, RasRank, RasReport
from ncclprobe.parse.log.clock import Clock
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.ras_json import STATUS_WORDS
from ncclprobe.parse.text import clean

ANY_OPERATION = "collective"
MAX_RANKS = 1_000_000
_MAX_LINE = 4_096

_BANNER = re.compile(r"[NR]CCL version (\S{1,40}) compiled with ")
_ROW = re.compile(
    r"\s*(?P<group>\d{1,7})\s+(?P<comms>\d{1,9})\s+\d{1,9}\s+\d{1,9}(?:-\d{1,9})?\s+(?P<size>\d{1,9})\s+\d{1,9}\s+"
    r"(?P<status>[A-Z]{2,12})\s+(?P<errors>[A-Z]{2,12}(?:,[A-Z]{2,12}){0,4})\s*$"
)
_BLOCK = re.compile(
    r"\s*(?:#(?P<group>\d{1,7})-\d{1,9} \((?P<id>[0-9a-f]{1,16})\) )?"
    r"(?P<kind>INCOMPLETE|ERROR|MISMATCH|DEAD|TIMEOUT)\s*$"
)
_TOPIC = re.compile(
    r"\s*Communicator ranks have different (?:(?P<status>status)|(?P<op>\w{1,40}) operation counts)\s*$"
)
_ERRORS = re.compile(r"\s*(?P<kind>Initialization|Asynchronous) errors? on \d+ ranks?")
_SEVERAL = re.compile(
    r"\s*(?P<many>\d{1,9}) ranks (?:have launched up to operation (?P<count>\d{1,18})"
    r"|(?P<none>have not launched any operations)|have status (?P<status>[A-Z]{2,12})|reported (?P<error>.{1,80}))"
)
_RANK = re.compile(
    r"\s*Rank (?P<rank>\d{1,9})(?: has launched up to operation (?P<count>\d{1,18})"
    r"|(?P<none> has not launched any operations)| has status (?P<status>[A-Z]{2,12})| reported (?P<error>.{1,80}?))?"
    r" -- (?:GPU (?P<cuda>\d{1,4})(?: \(NVML (?P<nvml>\d{1,4})\))?"
    r" managed by process (?P<pid>\d{1,10}) on node (?P<host>\S{1,120}))?"
)
_MISSING = re.compile(r"\s*The missing ranks?: ([\d, ]{1,2000})")
_PROCESS = re.compile(r"\s*Process (?P<pid>\d{1,10}) on node (?P<host>\S{1,120})")
_TIMEOUTS = re.compile(r"\s*Encountered (\d{1,9}) communication timeout")
_LAST_SECTION = re.compile(r"\s*Warnings\s*$")
_STATES = {word: state for state, word in STATUS_WORDS.items()} | {"UNKNOWN": "missing"}


def parse(text: str) -> Parsed[RasReport]:
    """All reports of the text."""
    clock, when_ns = Clock(), None
    readers: list[_Reader] = []
    for raw in text.splitlines():
        line = raw[:_MAX_LINE]
        if banner := _BANNER.search(line):
            readers.append(_Reader(version=clean(banner[1]), when_ns=when_ns))
            when_ns = None
        elif not (readers and readers[-1].read(line)):
            when_ns = clock.read(line) or when_ns
    return Parsed(
        records=tuple(reader.report() for reader in readers),
        problems=tuple(problem for reader in readers for problem in reader.problems()),
    )


@dataclass(slots=True)
class _Member:
    """A `RasRank` that still grows."""

    counts: dict[str, int] = field(default_factory=dict)
    state: str | None = None
    error: str | None = None
    host: str | None = None
    pid: int | None = None
    cuda_device: int | None = None
    nvml_device: int | None = None


@dataclass(slots=True)
class _Said:
    """What the lines of ranks that follow have in common: `N ranks have launched up to operation C`."""

    many: int = 0
    listed: int = 0
    count: int | None = None
    state: str | None = None
    error: str | None = None


@dataclass(slots=True)
class _Comm:
    """A `RasCommunicator` that still grows."""

    group: int
    members: dict[int, _Member] = field(default_factory=dict)
    commons: list[RasCount] = field(default_factory=list)


@dataclass(slots=True)
class _Row:
    """A row of the table: communicators of equal size, status and errors."""

    comms: int
    size: int
    status: str
    errors: str


@dataclass(slots=True)
class _Reader:
    """Reads one report line by line."""

    version: str
    when_ns: int | None
    rows: dict[int, _Row] = field(default_factory=dict)
    comms: dict[str, _Comm] = field(default_factory=dict)
    silent: list[tuple[str, int]] = field(default_factory=list)
    dead: list[tuple[str, int]] = field(default_factory=list)
    timeouts: int = 0
    has_ended: bool = False
    _kind: str = ""
    _comm: _Comm | None = None
    _op: str | None = None
    _error_kind: str = ""
    _said: _Said = field(default_factory=_Said)

    def read(self, line: str) -> bool:
        """Whether the line is part of a report."""
        if _LAST_SECTION.match(line):
            self.has_ended = True
            return True
        if row := _ROW.match(line):
            self.rows[int(row["group"])] = _Row(int(row["comms"]), int(row["size"]), row["status"], row["errors"])
            return True
        if block := _BLOCK.match(line):
            self._begin(block)
            return True
        return self._read_body(line)

    def report(self) -> RasReport:
        """All that was read."""
        self._end_of_group()
        dead = set(self.dead)
        listed = [self._communicator(name, comm, dead) for name, comm in self.comms.items()]
        return RasReport(
            nccl_version=self.version,
            communicators=(*listed, *self._unlisted()),
            when_ns=self.when_ns,
            silent=tuple(sorted(set(self.silent))),
            dead=tuple(sorted(dead)),
            timeouts=self.timeouts,
        )

    def problems(self) -> tuple[str, ...]:
        """What is missing, in words."""
        return () if self.has_ended else ("the report is cut off before its section of warnings",)

    def _begin(self, block: re.Match[str]) -> None:
        self._end_of_group()
        self._kind, self._comm, self._op, self._error_kind = block["kind"], None, None, ""
        if block["id"]:
            name = f"0x{int(block['id'], 16):x}"
            self._comm = self.comms.setdefault(name, _Comm(group=int(block["group"])))

    def _read_body(self, line: str) -> bool:
        if process := _PROCESS.match(line):
            found = (clean(process["host"]), int(process["pid"]))
            if self._kind in ("DEAD", "INCOMPLETE"):
                (self.dead if self._kind == "DEAD" else self.silent).append(found)
            return True
        if timeouts := _TIMEOUTS.match(line):
            self.timeouts = int(timeouts[1])
            return True
        return self._comm is not None and self._read_of_comm(line, self._comm)

    def _read_of_comm(self, line: str, comm: _Comm) -> bool:
        if topic := _TOPIC.match(line):
            self._end_of_group()
            self._op = None if topic["status"] else clean(topic["op"])
        elif errors := _ERRORS.match(line):
            self._end_of_group()
            self._error_kind = errors["kind"]
        elif several := _SEVERAL.match(line):
            self._end_of_group()
            self._said = self._said_of(several, int(several["many"]))
        elif rank := _RANK.match(line):
            self._add_rank(comm, rank)
        elif missing := _MISSING.match(line):
            for number in re.findall(r"\d{1,9}", missing[1]):
                comm.members.setdefault(int(number), _Member()).state = "unresponsive"
        else:
            return False
        return True

    def _said_of(self, line: re.Match[str], many: int) -> _Said:
        count = 0 if line["none"] else int(line["count"]) if line["count"] else None
        error = f"{self._error_kind or 'Reported'} error: {clean(line['error'].strip())}" if line["error"] else None
        return _Said(many=many, count=count, state=_STATES.get(line["status"] or ""), error=error)

    def _end_of_group(self) -> None:
        """Those that were counted but not listed."""
        said, self._said = self._said, _Said()
        others = said.many - said.listed
        if self._comm is not None and said.count is not None and others > 0:
            self._comm.commons.append(RasCount(op=self._op or ANY_OPERATION, count=said.count, others=others))

    def _add_rank(self, comm: _Comm, line: re.Match[str]) -> None:
        number = int(line["rank"])
        if number not in comm.members and len(comm.members) >= MAX_RANKS:
            return
        has_own = line["count"] or line["none"] or line["status"] or line["error"]
        if has_own:
            self._end_of_group()
        said = self._said_of(line, 1) if has_own else self._said
        self._said.listed += 0 if has_own else 1
        member = comm.members.setdefault(number, _Member())
        _note_process(member, line)
        if said.count is not None:
            member.counts[self._op or ANY_OPERATION] = said.count
        member.state = "unresponsive" if self._kind == "INCOMPLETE" else said.state or member.state
        member.error = said.error or member.error

    def _communicator(self, name: str, comm: _Comm, dead: set[tuple[str, int]]) -> RasCommunicator:
        row = self.rows.get(comm.group)
        return RasCommunicator(
            id=name,
            size=row.size if row else None,
            ranks=tuple(_rank(number, member, dead) for number, member in sorted(comm.members.items())),
            commons=tuple(comm.commons),
            status=row.status if row else "",
            errors=row.errors if row else "",
        )

    def _unlisted(self) -> list[RasCommunicator]:
        """One without id for all communicators of a row that no block is about."""
        found = []
        for group, row in self.rows.items():
            named = sum(comm.group == group for comm in self.comms.values())
            if row.comms > named:
                found.append(RasCommunicator(id="", size=row.size, ranks=(), status=row.status, errors=row.errors))
        return found


def _note_process(member: _Member, line: re.Match[str]) -> None:
    if line["host"]:
        member.host, member.pid, member.cuda_device = clean(line["host"]), int(line["pid"]), int(line["cuda"])
        member.nvml_device = int(line["nvml"] or line["cuda"])


def _rank(number: int, member: _Member, dead: set[tuple[str, int]]) -> RasRank:
    is_dead = member.host is not None and (member.host, member.pid) in dead
    return RasRank(
        rank=number,
        host=member.host,
        pid=member.pid,
        cuda_device=member.cuda_device,
        nvml_device=member.nvml_device,
        counts=dict(member.counts),
        state="dead" if is_dead else member.state,
        error=member.error,
    )
