"""Stacks as pystack (1.3 and later) prints them: `Traceback for thread 12 (python) [Has the GIL] (most recent ...`.

In: lines. Out: a dump for each process; pystack prints the outermost frame first, the model has the innermost first.

The text names no process. `pystack remote` prints the threads of one; where several were written to one file, a second
thread that runs a program of its own begins the next.
"""

import re
from collections.abc import Sequence

from ncclprobe.model.stacks import StackDump, Thread
from ncclprobe.parse.stack_reader import MAX_THREADS, Format, OpenThread, shortened, whole, without_parameters

_THREAD = re.compile(
    r"\s*Traceback for thread (?P<tid>\d{1,18})(?: \((?P<name>[^)]*)\))?(?: \[(?P<state>[^\]]*)\])?"
    r" \(most recent call last\):?"
)
_FRAME = re.compile(r'\s+\((?P<kind>Python|C)\) File "(?P<file>[^"]*)", line (?P<line>\d{1,9}), in (?P<function>.+)$')
_LIBRARY = re.compile(r"(?P<name>.*?)(?: \(inlined\))?(?: \((?P<library>/?[^()]*)\))?$")
_UNKNOWN = "???"


def read(lines: Sequence[str]) -> list[StackDump]:
    """The threads of each process; the pid is the main thread's where one thread runs the program."""
    threads: list[OpenThread] = []
    for line in map(shortened, lines):
        if match := _THREAD.match(line):
            threads.append(_thread(match))
        elif threads and (match := _FRAME.match(line)):
            _add_frame(threads[-1], match)
    closed = [thread.closed(is_outermost_first=True) for thread in threads[:MAX_THREADS]]
    return [_dump(part) for part in _by_process(closed)]


def _by_process(threads: list[Thread]) -> list[list[Thread]]:
    parts: list[list[Thread]] = []
    tids: set[int | None] = set()
    has_first = False
    for thread in threads:
        if not parts or (has_first and thread.is_first) or (thread.tid is not None and thread.tid in tids):
            parts.append([])
            tids, has_first = set(), False
        parts[-1].append(thread)
        tids.add(thread.tid)
        has_first = has_first or thread.is_first
    return parts


def _dump(threads: list[Thread]) -> StackDump:
    main = next((thread for thread in threads if thread.is_first), None)
    return StackDump(pid=main.tid if main else None, threads=tuple(threads))


def _thread(match: re.Match[str]) -> OpenThread:
    state = match["state"]
    is_told = state is not None
    return OpenThread(
        name=match["name"] or "",
        tid=whole(match["tid"]),
        owns_gil="Has the GIL" in state if is_told else None,
        waits_for_gil="Waiting for the GIL" in state if is_told else None,
    )


def _add_frame(thread: OpenThread, match: re.Match[str]) -> None:
    """A C function without debug information has its library for a file."""
    function, file = match["function"], match["file"]
    if match["kind"] == "Python":
        thread.add(function, file, match["line"])
        return
    parts = _LIBRARY.match(function)
    library = parts["library"] if parts else None
    name = without_parameters(parts["name"] if parts else function)
    thread.add(name, library or "" if file == _UNKNOWN or not file else file, match["line"])


FORMAT = Format(
    name="pystack's text",
    header=re.compile(r"\s*Traceback for thread \d+"),
    line=re.compile(
        r'\s*Traceback for thread \d+|\s+\((?:Python|C)\) File "|\s{6,}\S|The (?:frame stack|process|core)|Using '
    ),
    read=read,
)
