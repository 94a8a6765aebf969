"""Stacks as `py-spy dump` prints them for people: `Process 12: python train.py`, `Thread 12 (idle): "MainThread"`.

In: lines. Out: a dump for each process; frames innermost first, paths shortened to the outermost package.

`--subprocesses` prints children after their parent, with a line `Parent Process 12: ...`; `--locals` puts variables
below their frame, indented deeper. What was pasted without its `Process` line is a dump too.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ncclprobe.model.stacks import StackDump
from ncclprobe.parse.stack_reader import MAX_THREADS, Format, OpenThread, shortened, whole
from ncclprobe.parse.text import clean

_PROCESS = re.compile(r"\s*Process (?P<pid>\d{1,18}): ?(?P<command>.*)")
_PARENT = re.compile(r"\s*Parent Process (?P<pid>\d{1,18}):")
_THREAD = re.compile(
    r"\s*Thread (?P<tid>\d{1,18}|0x[0-9A-Fa-f]{1,16})(?: \((?P<state>active|idle|(?:active\+|idle\+)?gil)\))?"
    r'(?:: "(?P<name>.*)")?$'
)
_FRAME = re.compile(r"(?P<indent>\s*)(?P<function>\S.*?) \((?P<file>[^()]+?)(?::(?P<line>\d{1,9}))?\)$")


@dataclass(slots=True)
class _Open:
    pid: int | None = None
    command: str = ""
    parent_pid: int | None = None
    threads: list[OpenThread] = field(default_factory=list)
    indent: int | None = None

    def closed(self) -> StackDump:
        threads = tuple(thread.closed() for thread in self.threads[:MAX_THREADS])
        return StackDump(pid=self.pid, threads=threads, command=self.command, parent_pid=self.parent_pid)

    def has_had(self, thread: OpenThread) -> bool:
        """Whether this thread must be of another process, whose first line was not copied."""
        is_main = thread.name == "MainThread"
        return any(
            (is_main and known.name == "MainThread") or (known.tid is not None and known.tid == thread.tid)
            for known in self.threads[-64:]
        )


def read(lines: Sequence[str]) -> list[StackDump]:
    """A dump for each `Process` line, and for threads before the first one."""
    dumps = [_Open()]
    for line in map(shortened, lines):
        if match := _PROCESS.match(line):
            dumps.append(_Open(pid=whole(match["pid"]), command=clean(match["command"].strip())))
        elif match := _PARENT.match(line):
            dumps[-1].parent_pid = whole(match["pid"])
        elif match := _THREAD.match(line):
            thread = _thread(match)
            if dumps[-1].has_had(thread):
                dumps.append(_Open())
            dumps[-1].threads.append(thread)
        elif dumps[-1].threads:
            _add_frame(dumps[-1], line)
    return [dump.closed() for dump in dumps if dump.threads]


def _thread(match: re.Match[str]) -> OpenThread:
    tid, state = match["tid"], match["state"]
    return OpenThread(
        name=match["name"] or "",
        tid=None if tid.startswith("0x") else whole(tid),
        is_active=None if state in (None, "gil") else state.startswith("active"),
        owns_gil=None if state is None else state.endswith("gil"),
    )


def _add_frame(dump: _Open, line: str) -> None:
    """A line indented deeper than the first frame is a variable, whatever it looks like."""
    match = _FRAME.match(line)
    if match is None:
        return
    indent = len(match["indent"])
    if dump.indent is None:
        dump.indent = indent
    if indent <= dump.indent:
        dump.threads[-1].add(match["function"], match["file"], match["line"])


FORMAT = Format(
    name="py-spy's text",
    header=re.compile(r'\s*(?:Parent )?Process \d+: |\s*Thread (?:\d+|0x\w+)(?: \([a-z+]+\))?(?:: "|$)'),
    line=re.compile(
        r'\s*(?:Parent )?Process \d+: |Python v\d|\s*Thread (?:\d+|0x\w+)(?: \([a-z+]+\))?(?:: "|$)'
        r"|\s+\S.* \([^()]+\)$|\s+(?:Arguments|Locals):$|\s{8,}\w+: "
    ),
    read=read,
)
