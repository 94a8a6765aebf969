"""Stacks as Python's own `faulthandler` writes them: on a fatal signal, on a registered one, or after a timeout.

In: lines. Out: a dump for each time it wrote; frames innermost first. No thread has a name before Python 3.14, and
`Current thread` is the one that got the signal, as a rule the main thread.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ncclprobe.model.stacks import StackDump
from ncclprobe.parse.stack_reader import MAX_THREADS, Format, OpenThread, line_number, shortened

_THREAD = re.compile(
    r"\s*(?:(?P<current>Current thread|Stack)|Thread)(?: 0x(?P<ident>[0-9a-fA-F]{1,16}))?(?: \[(?P<name>[^\]]*)\])?"
    r" \(most recent call first\):"
)
_FRAME = re.compile(r'\s*File "(?P<file>[^"]*)", line (?P<line>\d{1,9}|\?+),? in (?P<function>\S+)')
_BEGIN = re.compile(r"\s*(?:Fatal Python error: |Timeout \(\d|Windows fatal exception)")


@dataclass(slots=True)
class _Open:
    threads: list[OpenThread] = field(default_factory=list)
    idents: set[str] = field(default_factory=set)


def read(lines: Sequence[str]) -> list[StackDump]:
    """A dump begins at the line that says why, or where a thread comes a second time."""
    dumps = [_Open()]
    for line in map(shortened, lines):
        if _BEGIN.match(line):
            dumps.append(_Open())
        elif match := _THREAD.match(line):
            ident = match["ident"] or ""
            if ident in dumps[-1].idents or not ident:
                dumps.append(_Open())
            dumps[-1].idents.add(ident)
            dumps[-1].threads.append(OpenThread(name=match["name"] or ""))
        elif dumps[-1].threads and (match := _FRAME.match(line)):
            number = match["line"] if line_number(match["line"].strip("?")) else None
            dumps[-1].threads[-1].add(match["function"], match["file"], number)
    return [_closed(dump) for dump in dumps if dump.threads]


def _closed(dump: _Open) -> StackDump:
    threads = tuple(thread.closed() for thread in dump.threads[:MAX_THREADS])
    return StackDump(pid=None, threads=threads)


FORMAT = Format(
    name="faulthandler's tracebacks",
    header=re.compile(
        r"\s*(?:Current thread 0x|Thread 0x|Stack )[0-9a-fA-F]*(?: \[[^\]]*\])? ?\(most recent call first"
        r"|\s*Fatal Python error: |\s*Timeout \(\d"
    ),
    line=re.compile(
        r'\s*(?:Current thread|Thread 0x|Stack \(|Fatal Python error|Timeout \(|Extension modules)|\s*File "|\s+\.\.\.$'
        r"|\s+<no Python frame>|Python runtime state"
    ),
    read=read,
)
