"""Processes that the kernel killed for memory.

In: lines of the kernel's log. Out: `OomKill`s.

Wording (Linux mm/oom_kill.c): to 5.0 the kernel says "Memory cgroup out of memory: Kill process N (x) score S or
sacrifice child" and then whom it really killed: "Killed process M (y) total-vm:..."; since 5.1 it is one line, "Memory
cgroup out of memory: Killed process N (x) total-vm:...". The cgroup stands in a line before: "Task in A killed as a
result of limit of B" to 4.20, "oom-kill:...,task_memcg=A,task=x,pid=N,uid=U" since 5.0, "Tasks in A are going to be
killed due to memory.oom.group set" where a whole group dies. "oom_reaper: reaped process N (x)" follows since 4.6.
"""

import re

from ncclprobe.model.kernel import OomKill
from ncclprobe.parse.kernel_lines import KernelLine
from ncclprobe.parse.text import clean

NEEDLES = ("Killed process", "Kill process", "oom-kill:", "oom_reaper:", "Task in ", "Tasks in ")

# A command may hold blanks and parentheses of its own, but 15 characters at most (TASK_COMM_LEN).
_KILLED = re.compile(
    r"(?:(?:Memory cgroup out of memory|Out of memory)[^:]{0,80}: )?Killed process (?P<pid>\d{1,9})"
    r" \((?P<command>.{0,64})\)(?:,? (?:UID|total-vm)|\s*$)"
)
_RSS = re.compile(r"anon-rss:(\d{1,15})kB")
_DECIDED = re.compile(r"oom-kill:.*?,task_memcg=(?P<cgroup>.*?),task=.*,pid=(?P<pid>\d{1,9}),uid=")
_GROUP = re.compile(r"Tasks? in (?P<cgroup>.*?) (?:killed as a result of limit of|are going to be killed)")
_REAPED = re.compile(r"oom_reaper: reaped process (?P<pid>\d{1,9}) \((?P<command>.{0,64})\), ")


class OomReader:
    """Reads one log. It knows the cgroup whose limit was hit, the process chosen, and who is known to be killed."""

    def __init__(self) -> None:
        self._group: str | None = None
        self._chosen: tuple[int, str] | None = None
        self._killed: set[int] = set()

    def kill_in(self, line: KernelLine) -> OomKill | None:
        """The kill that a line tells of, if it does."""
        words = line.words
        if words.startswith("Out of memory"):  # the host's own memory, not a cgroup's
            self._group = None
        killed = _KILLED.match(words)
        if killed:
            return self._kill(line, killed)
        reaped = _REAPED.match(words)
        if reaped and int(reaped["pid"]) not in self._killed:
            return self._kill(line, reaped)
        self._note(words)
        return None

    def _note(self, words: str) -> None:
        if decided := _DECIDED.match(words):
            self._group, self._chosen = None, (int(decided["pid"]), decided["cgroup"])
        elif group := _GROUP.match(words):
            self._group = group["cgroup"]

    def _kill(self, line: KernelLine, found: re.Match[str]) -> OomKill:
        pid, rss = int(found["pid"]), _RSS.search(line.words)
        self._killed.add(pid)
        cgroup = self._chosen[1] if self._chosen and self._chosen[0] == pid else self._group
        return OomKill(
            pid=pid,
            command=clean(found["command"], 64),
            cgroup=clean(cgroup) if cgroup is not None else None,
            anon_rss_kb=int(rss[1]) if rss and found.re is _KILLED else None,
            **line.place(),
        )
