"""Stacks of gdb: `thread apply all bt`, with the frames of `py-bt` where its Python extension is loaded.

In: lines. Out: a dump for each process, its threads with frames of C and C++, innermost first, without addresses.

`Thread 1` is the process's first one, so its LWP is the pid. gdb breaks long lines at the width of the terminal.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ncclprobe.model.stacks import StackDump
from ncclprobe.parse.stack_reader import MAX_THREADS, Format, OpenThread, shortened, whole, without_parameters

_THREAD = re.compile(
    r"\s*Thread (?P<number>\d{1,9}) \((?:Thread 0x[0-9a-fA-F]+ )?\(?(?:LWP|process) (?P<tid>\d{1,18})\)?"
    r'(?: "(?P<name>[^"]*)")?\)'
)
_FRAME = re.compile(r"\s*#\d{1,7}\s+(?:0x[0-9a-fA-F]+ in )?(?P<rest>\S.*)$")
# `bt` alone prints the current thread, without a line that names it.
_NAMELESS = r"\s*#0\s+(?:0x[0-9a-fA-F]{6,16} in |[\w:~<>@]{1,200} ?\()"
_FIRST = re.compile(_NAMELESS)
_SOURCE = re.compile(r" at (?P<file>[^\s()]+):(?P<line>\d{1,9})$")
_OBJECT = re.compile(r" from (?P<file>[^\s()]+)$")
_PYTHON = re.compile(r'\s+File "(?P<file>[^"]*)", line (?P<line>\d{1,9}), in (?P<function>\S+)')
_BEGINS = re.compile(r"\s*(?:#\d|Thread \d|\[|Traceback |File \"|\(gdb\)|$)")
_MAX_PARTS = 64


@dataclass(slots=True)
class _Open:
    threads: list[OpenThread] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def is_ended_by(self, number: int) -> bool:
        """Whether a thread of this number must be of the next process: gdb prints them in order, up or down."""
        is_falling = len(self.numbers) > 1 and self.numbers[0] > self.numbers[1]
        return number in self.numbers[-64:] or (is_falling and number > self.numbers[-1])

    def closed(self) -> StackDump:
        first = self.threads[self.numbers.index(1)].tid if 1 in self.numbers else None
        return StackDump(pid=first, threads=tuple(thread.closed() for thread in self.threads))


def read(lines: Sequence[str]) -> list[StackDump]:
    """A process for each time the numbers of threads start again."""
    dumps: list[_Open] = []
    for line in _joined(lines):
        if match := _THREAD.match(line):
            number = int(match["number"])
            if not dumps or dumps[-1].is_ended_by(number) or len(dumps[-1].threads) >= MAX_THREADS:
                dumps.append(_Open())
            dumps[-1].numbers.append(number)
            dumps[-1].threads.append(OpenThread(name=match["name"] or "", tid=whole(match["tid"])))
        elif _FIRST.match(line) and (not dumps or dumps[-1].threads[-1].frames):
            dumps.append(_Open(threads=[OpenThread()], numbers=[0]))
            _add_frame(dumps[-1].threads[-1], line)
        elif dumps:
            _add_frame(dumps[-1].threads[-1], line)
    return [dump.closed() for dump in dumps]


def _joined(lines: Sequence[str]) -> Iterator[str]:
    """Whole lines: what begins like nothing of gdb's goes on the line before."""
    parts: list[str] = []
    for line in lines:
        if parts and not _BEGINS.match(line) and _FRAME.match(parts[0]) and len(parts) < _MAX_PARTS:
            parts.append(line.strip())
            continue
        if parts:
            yield shortened(" ".join(parts))
        parts = [line]
    if parts:
        yield shortened(" ".join(parts))


def _add_frame(thread: OpenThread, line: str) -> None:
    if python := _PYTHON.match(line):
        thread.add(python["function"], python["file"], python["line"])
        return
    match = _FRAME.match(line)
    if match is None:
        return
    rest = match["rest"]
    place = _SOURCE.search(rest) or _OBJECT.search(rest)
    named = rest[: place.start()] if place else rest
    source_line = place["line"] if place and "line" in place.re.groupindex else None
    thread.add(without_parameters(named), place["file"] if place else "", source_line)


FORMAT = Format(
    name="gdb's backtraces",
    header=re.compile(rf"\s*Thread \d+ \((?:Thread 0x|LWP |process )|{_NAMELESS}"),
    line=re.compile(
        r"\s*Thread \d+ \((?:Thread 0x|LWP |process )|\s*#\d+ |\[New (?:LWP|Thread)|\[Thread |\[Inferior|Using host lib"
        r"|Reading symbols|\(gdb\)|\s+\S|warning: |0x[0-9a-f]+ in |__\w+ \("
    ),
    read=read,
)
