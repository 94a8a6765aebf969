"""The kernel's log: processes killed for memory.

In: text of dmesg in any of its time forms, of `journalctl -k`, of kern.log or syslog, or of /dev/kmsg. Out: `OomKill`s.

Wording (Linux mm/oom_kill.c): to 5.0 the kernel says "Memory cgroup out of memory: Kill process N (x) score S or
sacrifice child" and then whom it really killed: "Killed process M (y) total-vm:..."; since 5.1 it is one line, "Memory
cgroup out of memory: Killed process N (x) total-vm:...". The cgroup stands in a line before: "Task in A killed as a
result of limit of B" to 4.20, "oom-kill:...,task_memcg=A,task=x,pid=N,uid=U" since 5.0, "Tasks in A are going to be
killed due to memory.oom.group set" where a whole group dies. "oom_reaper: reaped process N (x)" follows since 4.6.
"""

import io
import re
from collections import deque

from ncclprobe.model.errors import ParseError
from ncclprobe.model.kernel import OomKill
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.text import clean

MAX_KILLS = 1_000
_MAX_LINE = 4_096
_MAX_QUOTE = 200

# What stands before the kernel's own words. Anything else there means that some other program wrote the line.
_LINE = re.compile(
    r"""
    (?: kern \s* : \s* \w+ \s* : \s+ )?                          # dmesg -x: facility and level
    (?: <\d{1,3}> )?                                             # dmesg -r: priority
    (?: \d+ , \d+ , (?P<usec>\d{1,16}) , [^;]{0,64} ; )?         # /dev/kmsg
    (?P<when>
        \[ \s* \d+ \. \d+ [^\]]{0,20} \]                         # seconds since boot; dmesg -d adds a difference
      | \[ \s* (?: \+ \d+ \. \d+ | \w{3} \s? \d{1,2} \s \d\d:\d\d ) \]                             # dmesg -H, -e
      | \[ \w{3} \s \w{3} \s [ \d]\d \s [\d:]{8} \s \d{4} \]       # dmesg -T
      | (?: \w{3} \s )? \d{4}-\d\d-\d\d [T\ ] [\d:.,]{8,20} (?: \s \w{1,5} | [+-]\d\d:?\d\d | Z )?   # ISO 8601
      | \w{3} \s [\ \d]\d \s \d\d:\d\d:\d\d (?: \. \d{1,9} )?        # syslog
      | \d{9,11} \. \d{1,9}                                      # seconds since 1970
    )? \s*
    (?: \S{1,255} \s kernel: \s* )?                              # syslog and the journal: host and program
    (?: \[ \s* \d+ \. \d+ \] \s* )?                              # the boot clock behind another time
    (?P<words>
        (?: Memory\ cgroup\ out\ of\ memory | Out\ of\ memory | Killed\ process | Tasks?\ in | oom-kill: | oom_reaper: )
        .*
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_HINT = re.compile(rb"Kill(?:ed)? process|oom-kill:|oom_reaper:|Tasks? in ")
# A command may hold blanks and parentheses of its own, but 15 characters at most (TASK_COMM_LEN).
_KILLED = re.compile(
    r"(?:[^:]{0,80}: )?Killed process (?P<pid>\d{1,9}) \((?P<command>.{0,64})\)(?:,? (?:UID|total-vm)|\s*$)"
)
_RSS = re.compile(r"anon-rss:(\d{1,15})kB")
_DECIDED = re.compile(r"oom-kill:.*?,task_memcg=(?P<cgroup>.*?),task=.*,pid=(?P<pid>\d{1,9}),uid=")
_GROUP = re.compile(r"Tasks? in (?P<cgroup>.*?) (?:killed as a result of limit of|are going to be killed)")
_REAPED = re.compile(r"oom_reaper: reaped process (?P<pid>\d{1,9}) \((?P<command>.{0,64})\), ")


def parse(data: bytes) -> Parsed[OomKill]:
    """All kills, in the order of the log, of a flood the last; ParseError when the bytes are no text."""
    if b"\0" in data[:_MAX_LINE]:
        raise ParseError("not a kernel log: it holds binary data")
    reader = _Reader()
    count, kept = 0, deque[OomKill](maxlen=MAX_KILLS)
    for number, raw in enumerate(io.BytesIO(data), start=1):
        kill = reader.kill_in(number, raw[:_MAX_LINE]) if _HINT.search(raw) else None
        if kill is not None:
            count += 1
            kept.append(kill)
    problem = f"it tells of {count} kills; only the last {MAX_KILLS} were looked at"
    return Parsed(records=tuple(kept), problems=(problem,) if count > MAX_KILLS else ())


class _Reader:
    """What earlier lines said: the cgroup whose limit was hit, the process chosen, and who is known to be killed."""

    def __init__(self) -> None:
        self.group: str | None = None
        self.chosen: tuple[int, str] | None = None
        self.killed: set[int] = set()

    def kill_in(self, number: int, raw: bytes) -> OomKill | None:
        """The kill that a line tells of, if it does."""
        line = _LINE.match(raw.decode("utf-8", "replace"))
        if line is None:
            return None
        words = line["words"]
        if words.startswith("Out of memory"):  # the host's own memory, not a cgroup's
            self.group = None
        killed = _KILLED.match(words)
        if killed:
            return self._kill(number, line, killed)
        reaped = _REAPED.match(words)
        if reaped and int(reaped["pid"]) not in self.killed:
            return self._kill(number, line, reaped)
        self._note(words)
        return None

    def _note(self, words: str) -> None:
        if decided := _DECIDED.match(words):
            self.group, self.chosen = None, (int(decided["pid"]), decided["cgroup"])
        elif group := _GROUP.match(words):
            self.group = group["cgroup"]

    def _kill(self, number: int, line: re.Match[str], found: re.Match[str]) -> OomKill:
        pid, rss = int(found["pid"]), _RSS.search(line["words"])
        self.killed.add(pid)
        cgroup = self.chosen[1] if self.chosen and self.chosen[0] == pid else self.group
        when = f"{int(line['usec']) / 1e6:.6f}" if line["usec"] else (line["when"] or "").strip("[] ")
        return OomKill(
            pid=pid,
            command=clean(found["command"], 64),
            cgroup=clean(cgroup) if cgroup is not None else None,
            anon_rss_kb=int(rss[1]) if rss and found.re is _KILLED else None,
            line=number,
            when=clean(when),
            quote=clean(line[0].strip(), _MAX_QUOTE),
        )
