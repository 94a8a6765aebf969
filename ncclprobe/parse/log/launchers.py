"""What programs that start ranks say of their end: torchrun, torch.multiprocessing, DeepSpeed, mpirun, shells.

In: lines. Out: `Died`, `StoppedByLauncher`, `Restarted`, `Left`, with the pid, rank, local rank or host that a line
names.

A launcher is no rank: the rank of its prefix is not taken over. Its table of failures is one event an entry.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from ncclprobe.model.log import Died, Left, LogEvent, LogFact, Restarted, StoppedByLauncher
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.sections import NEEDLES as SECTION_NEEDLES
from ncclprobe.parse.log.signals import SIGNAL_WORDS, died, number
from ncclprobe.parse.text import clean

NEEDLES = (
    b"failed (exitcode: ",
    b"Root Cause",
    b"Failures:",
    b"(local_rank:",
    b"exitcode",
    b"closing signal SIG",
    b"death signal, shutting down",
    b"will restart worker group",
    b"Restarting worker group",
    b"Unable to shutdown process",
    b"terminated with signal",
    b" died unexpectedly",
    b"terminated with exit code",
    b"Killing subprocess",
    b"exits with return code",
    b"exits successfully",
    b"exited on signal",
    b"The first process to do so was",
    b"MPI_ABORT was invoked",
    b"BAD TERMINATION OF",
    b"KILLED BY SIGNAL",
    b"EXIT CODE:",
    b" RUNNING AT ",
    b"ssh exited with exit code",
    b" Killed ",
    b" Segmentation fault ",
    b" Aborted ",
    b" Bus error ",
    b"not expected)",
    b"; expected)",
    b"Child process with PID",
    b"crashed with exit code",
    b") exited with code",
    *SECTION_NEEDLES,
)
BLOCK_NEEDLES = (b"Root Cause", b"The first process to do so was", b"BAD TERMINATION OF")

_MAX_OPEN = 256
_MAX_LINE = 4_000
_MAX_COMMAND = 20_000
_MAX_REASON = 300
_WordsOf = re.Match[str]
_Answer = tuple[LogFact, dict[str, Any]]


def _code(match: _WordsOf) -> _Answer:
    """Groups `code` or `signal`, and who: `pid`, `rank`, `local`, `host`. Pid 0 is "not known here" (mpirun)."""
    groups = match.groupdict()
    who: dict[str, Any] = {
        "pid": int(groups.get("pid") or 0) or None,
        "rank": int(groups["rank"]) if groups.get("rank") else None,
        "local_rank": int(groups["local"]) if groups.get("local") else None,
    }
    if groups.get("host"):
        who["host"] = groups["host"]
    signal = number(groups["signal"]) if groups.get("signal") else None
    reason = clean(match[0].strip(), _MAX_REASON)
    is_first = bool(groups.get("rank"))  # mpirun names the first one, and it alone by rank
    if signal is not None:
        return Died(signal=signal, reason=reason, is_first=is_first), who
    return died(int(groups.get("code") or 1), reason, is_first=is_first), who


def _numbered(match: _WordsOf) -> _Answer:
    """Of one that names every rank: the first in its list is not the first that ended."""
    fact, who = _code(match)
    return fact, who | {"rank": int(match["number"])}


def _first(match: _WordsOf) -> _Answer:
    """DeepSpeed's reason for killing the others, which it prints after it has done so."""
    fact, who = _code(match)
    return (replace(fact, is_first=True) if isinstance(fact, Died) else fact), who


def _gone(match: _WordsOf) -> _Answer:
    """Of vLLM, which numbers its workers by rank."""
    return Died(reason=clean(match[0], _MAX_REASON), is_first=True), {"rank": int(match["rank"])}


def _stopped(match: _WordsOf) -> _Answer:
    return StoppedByLauncher(), {"pid": int(match["pid"]), "rank": None}


def _stopping(match: _WordsOf) -> _Answer:
    return StoppedByLauncher(), {"rank": None}


def _restarted(match: _WordsOf) -> _Answer:
    return Restarted(), {"rank": None}


def _left(match: _WordsOf) -> _Answer:
    return Left(how="its process ended with success"), {"pid": int(match["pid"]), "rank": None}


_RULES: tuple[tuple[re.Pattern[str], Callable[[_WordsOf], _Answer]], ...] = (
    (re.compile(r"failed \(exitcode: (?P<code>-?\d{1,6})\) local_rank: (?P<local>\d{1,5}) \(pid: (?P<pid>\d{1,9})\)"),
     _code),
    (re.compile(r"Sending process (?P<pid>\d{1,9}) closing signal SIG[A-Z]+"), _stopped),
    (re.compile(r"Unable to shutdown process (?P<pid>\d{1,9}) via"), _stopped),
    (re.compile(r"Received (?:Signals\.)?\w+ death signal, shutting down workers"), _stopping),
    (re.compile(r"attempts? left; will restart worker group|[Rr]estarting worker group"), _restarted),
    (re.compile(r"\b[Pp]rocess (?P<local>\d{1,5}) terminated with (?:signal (?P<signal>SIG\w+|\d+)"
                r"|exit code (?P<code>-?\d{1,6}))"), _code),
    (re.compile(r"(?<!\w)Worker proc \w{0,40}?Worker-(?P<rank>\d{1,5}) died unexpectedly"), _gone),
    (re.compile(r"Killing subprocess (?P<pid>\d{1,9})"), _stopped),
    (re.compile(r"[Pp]rocess (?P<pid>\d{1,9}) exits with return code ?= ?(?P<code>-?\d{1,6})"), _code),
    (re.compile(r"--local_rank=(?P<local>\d{1,5})\b.{0,20000}\] exits with return code = (?P<code>-?\d{1,6})"), _first),
    (re.compile(r"\] exits with return code = (?P<code>-?\d{1,6})"), _first),
    (re.compile(r"[Pp]rocess (?P<pid>\d{1,9}) exits successfully"), _left),
    (re.compile(r"noticed that process rank (?P<rank>\d{1,7}) with PID (?P<pid>\d{1,9}) on node (?P<host>\S{1,200}) "
                r"exited on signal (?P<signal>\d{1,2})"), _code),
    (re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d{1,7}) in communicator .{1,100}? "
                r"with errorcode (?P<code>-?\d{1,6})"), _code),
    (re.compile(r"(?:(?P<host>[\w.-]{1,200}): )?ssh exited with exit code (?P<code>\d{1,3})"), _code),
    (re.compile(rf": line \d+: +(?P<pid>\d{{1,9}}) +(?P<signal>{SIGNAL_WORDS})\b"
                r"(?:.{0,400}?(?<![\w.])RANK=(?P<rank>\d{1,7})\b)?"), _code),
    # Lightning, on a host; Composer, of all ranks.
    (re.compile(r"\[rank: (?P<rank>\d{1,7})\] Child process with PID (?P<pid>\d{1,9}) terminated with code "
                r"(?P<code>-?\d{1,6})"), _code),
    (re.compile(r"\bRank (?P<number>\d{1,7}) crashed with exit code (?P<code>-?\d{1,6})"), _numbered),
    (re.compile(r"\bGlobal rank (?P<number>\d{1,7}) \(PID (?P<pid>\d{1,9})\) exited with code (?P<code>-?\d{1,6})"),
     _numbered),
    (re.compile(r"exited: \S{1,200} \((?:exit status (?P<code>\d{1,3})|terminated by (?P<signal>SIG[A-Z]+)[^)]{0,40})"
                r"; not expected\)"), _code),
)  # fmt: skip
_HINTS = ("xit", "rocess", "signal", "ABORT", ": line ", "worker group", "orker proc")
_HEAD = re.compile(r"^\s*(Root Cause\b.*|(?:Other )?Failures)\s*:\s*$")
_FIELD = re.compile(r"^\s*(time|host|rank|exitcode|error_file|traceback|msg)\s*:\s?(.*)$")
_ENTRY = re.compile(r"^\s*\[\d{1,7}\]:\s*$")
_RULER = re.compile(r"^\s*[=*-]{10,}\s*$")


class RECOGNIZER:
    """Lines that stand alone, and the tables that torchrun and mpirun print."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """What one line of a launcher tells."""
        # DeepSpeed's says it after the whole command.
        text = line.text[: _MAX_COMMAND if "exits with return code" in line.text else _MAX_LINE]
        yield from self._of_table(line, text)
        if not any(hint in text for hint in _HINTS):
            return
        for pattern, answer in _RULES:
            match = pattern.search(text)
            if match:
                fact, who = answer(match)
                yield line.event(fact, **who)
                return

    def end(self) -> Iterator[LogEvent]:
        """Entries of a table that the end cut."""
        for table in self._tables.values():
            yield from table.entry()
        self._tables.clear()

    def _of_table(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        table = self._tables.get(line.speaker)
        begun = _begin(text)
        if table is not None:
            yield from table.feed(line, text) if begun is None else table.entry()
            if table.is_over:
                del self._tables[line.speaker]
        if begun is not None and len(self._tables) < _MAX_OPEN:
            self._tables[line.speaker] = begun


class _Table:
    """One entry after the other, each `name : value`; told when the next one, or a ruler, comes."""

    def __init__(self, *, is_root: bool) -> None:
        self.is_root = is_root
        self.is_over = False
        self.fields: dict[str, str] = {}
        self.line: LogLine | None = None
        self.foreign = 0

    def feed(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        """Rulers stand before and after entries; other lines are those of a traceback in the table."""
        field = _FIELD.match(text)
        if _ENTRY.match(text) or _RULER.match(text):
            yield from self.entry()
        elif field and field[1] not in self.fields:
            self.fields[field[1]] = field[2].strip()
            self.line = line if field[1] == "exitcode" else self.line or line
            self.foreign = 0
        else:
            self.foreign += 1
            self.is_over = self.foreign > 200

    def entry(self) -> Iterator[LogEvent]:
        """The entry read so far."""
        fields, line = self.fields, self.line
        self.fields, self.line = {}, None
        code = re.match(r"(-?\d{1,6})(?: \(pid: (\d{1,9})\))?", fields.get("exitcode", ""))
        if line is None or code is None:
            return
        rank = re.match(r"(\d{1,7})(?: \(local_rank: (\d{1,5})\))?", fields.get("rank", ""))
        who = {
            "rank": int(rank[1]) if rank else None,
            "local_rank": int(rank[2]) if rank and rank[2] else None,
            "host": fields.get("host") or line.host,
            "pid": int(code[2]) if code[2] else None,
            "when_ns": _time(fields.get("time", "")) or line.when_ns,
        }
        reason = fields.get("traceback") or fields.get("msg") or ""
        if reason.startswith(("To enable traceback", "Traceback (most recent")):
            reason = f"exit code {code[1]}"
        yield line.event(died(int(code[1]), clean(reason, _MAX_REASON), is_first=self.is_root), **who)


class _FirstProcess(_Table):
    """mpirun's `Process name: [[63527,1],3]` and `Exit code: 1`, and Hydra's box, which has `PID 1 RUNNING AT host`."""

    _NAME = re.compile(r"Process name: \[\[\d+,\d+\],(?P<rank>\d{1,7})\]")
    _BOX = re.compile(r"(?:RANK (?P<rank>\d{1,7}) )?PID (?P<pid>\d{1,9}) RUNNING AT (?P<host>\S{1,200})")
    _CODE = re.compile(r"(?:Exit code|EXIT CODE): +(?P<code>-?\d{1,6})|KILLED BY SIGNAL: (?P<signal>\d{1,2})")

    def __init__(self) -> None:
        super().__init__(is_root=True)
        self.who: dict[str, Any] = {"rank": None}

    def feed(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        """Over with the code, or after a few lines without one."""
        name = self._NAME.search(text) or self._BOX.search(text)
        code = self._CODE.search(text)
        self.foreign += 1
        if name:
            found = name.groupdict()
            self.who |= {key: int(found[key]) for key in ("rank", "pid") if found.get(key)}
            self.who |= {"host": found["host"]} if found.get("host") else {}
        elif code:
            # Hydra writes the number of a signal as an exit code, too.
            fact = died(-int(code["signal"]) if code["signal"] else int(code["code"]), "", is_first=True)
            yield line.event(fact, **self.who)
        self.is_over = code is not None or self.foreign > 12

    def entry(self) -> Iterator[LogEvent]:
        """Nothing without its code."""
        self.is_over = True
        yield from ()


def _begin(text: str) -> _Table | None:
    head = _HEAD.match(text)
    if head:
        return _Table(is_root=head[1].startswith("Root"))
    if "The first process to do so was" in text or "BAD TERMINATION OF" in text:
        return _FirstProcess()
    return None


def _time(text: str) -> int | None:
    """`2026-03-30_16:20:45` in ns since 1970, as if it were UTC."""
    try:
        moment = datetime.strptime(text, "%Y-%m-%d_%H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1_000_000_000
