"""What NCCL puts before a message: `host:pid:thread [device] NCCL INFO `, and for a WARN where in NCCL it was written.

In: a line of a log. Out: its messages. Ranks that share a pipe write into one another's lines, so a message may begin
anywhere and ends where the next begins; what stands glued before a host name is told from it by hosts seen before.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ncclprobe.parse.log.clock import first_dated_ns

MAX_PROCESSES = 100_000

# src/debug.cc, NCCL 2.10 to 2.30.7. CALL has no device; WARN has its place, since 2.30.7 with the function; TRACE has
# milliseconds and a place. A host is tried once a word, which keeps the search linear.
_PREFIX = re.compile(
    r"(?<![\w.\-])(?P<host>[\w.\-]{1,255}):(?P<pid>\d{1,10}):(?P<thread>\d{1,10}) (?:\[(?P<device>-?\d{1,4})\] )?"
    r"(?:(?:\d{1,15}\.\d{1,9} )?(?P<place>[^\s:]{1,160}:\d{1,7})(?: \((?P<function>[^)]{0,160})\))? )?"
    r"NCCL (?P<level>INFO|WARN|CALL|TRACE) "
)
# NCCL_DEBUG_TIMESTAMP_FORMAT (2.26 and later); `[%F %T] ` unless set.
_TIME = re.compile(r"\[([^\[\]]{19,36})\] ?$")
_TIME_CHARACTERS = 40
# What the lines of communicators end in.
_LAST_WORD = re.compile(r"^(?:COMPLETE|START)(?=\w)")
_MAX_HOSTS_OF_A_PID = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message. `place` is `file:line` in NCCL. `when_ns` as in `LogEvent`, None where NCCL printed no time."""

    host: str
    pid: int
    thread: int
    level: str
    message: str
    place: str = ""
    when_ns: int | None = None


class Hosts:
    """The hosts seen so far, by pid: `0x55a1ad06b6node01` is node01 whose line began inside another one."""

    def __init__(self) -> None:
        self._of_pid: dict[int, list[str]] = {}

    def name(self, read: str, pid: int) -> str:
        """The host that is meant by what was read as one."""
        known = self._of_pid.setdefault(pid, []) if len(self._of_pid) < MAX_PROCESSES else self._of_pid.get(pid, [])
        for host in known:
            if read.endswith(host):
                return host
        host = _LAST_WORD.sub("", read)
        if len(known) < _MAX_HOSTS_OF_A_PID:
            known.append(host)
        return host


def messages(text: str, hosts: Hosts) -> Iterator[Said]:
    """All messages of the line, in order."""
    found = list(_PREFIX.finditer(text))
    names = [hosts.name(prefix["host"], int(prefix["pid"])) for prefix in found]
    starts = [prefix.end("host") - len(host) for prefix, host in zip(found, names, strict=True)]
    for number, prefix in enumerate(found):
        end = starts[number + 1] if number + 1 < len(starts) else len(text)
        yield Said(
            host=names[number],
            pid=int(prefix["pid"]),
            thread=int(prefix["thread"]),
            level=prefix["level"],
            message=text[prefix.end() : end].rstrip(),
            place=prefix["place"] or "",
            when_ns=_time_before(text, starts[number]),
        )


def _time_before(text: str, end: int) -> int | None:
    found = _TIME.search(text, max(0, end - _TIME_CHARACTERS), end)
    return first_dated_ns(found[1]) if found else None
