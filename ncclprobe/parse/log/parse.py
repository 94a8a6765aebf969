"""Text logs of a job: of ranks, launchers, schedulers and NCCL, apart or mixed in one file.

In: a log, as bytes or as an open file of any length. Out: what its lines tell (`LogEvent`, `OpTrace`), then who spoke
(`Speaker`). Each module of this folder that defines `RECOGNIZER` knows one family of lines.
"""

import importlib
import io
import pkgutil
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import BinaryIO

from ncclprobe.model.errors import ParseError
from ncclprobe.model.log import LogEvent, OpTrace, Speaker
from ncclprobe.parse import log as families
from ncclprobe.parse.log.keeping import KeptEvents, Voices
from ncclprobe.parse.log.line import Recognizer
from ncclprobe.parse.log.newest_first import MAX_BYTES, as_in_file, is_newest_first, turned
from ncclprobe.parse.log.prefix import Prefixes
from ncclprobe.parse.log.ranks import Claims
from ncclprobe.parse.log.stream import BLOCK_LINES, Stream
from ncclprobe.parse.log.wrapping import WholeLine, whole_lines
from ncclprobe.parse.parsed import Parsed

LogRecord = LogEvent | OpTrace | Speaker
_HEAD_BYTES = 4_096
_SAMPLE_BYTES = 64 << 10


def parse(log: bytes | BinaryIO) -> Parsed[LogRecord]:
    """Events in the order of their lines, operations, speakers; ParseError when the log is no text."""
    source: BinaryIO = io.BytesIO(log) if isinstance(log, bytes) else log
    head = source.read(_HEAD_BYTES)
    if b"\0" in head:
        raise ParseError("not a log: it holds binary data")
    sample = head + source.read(_SAMPLE_BYTES)
    if not is_newest_first(sample):
        return _read(source, sample)
    data = sample + source.read(MAX_BYTES)
    if len(data) > MAX_BYTES:
        return _read(source, data)
    oldest_first, count = turned(data)
    parsed = _read(io.BytesIO(), oldest_first)
    return replace(parsed, records=tuple(as_in_file(record, count) for record in parsed.records))


def _read(source: BinaryIO, head: bytes) -> Parsed[LogRecord]:
    stream = Stream(source, *_needles(), head=head)
    reader = _Reader(stream)
    for line in whole_lines(stream.lines(), lambda: stream.layout):
        reader.read(line)
    return reader.end()


@lru_cache(maxsize=1)
def find_families() -> tuple[ModuleType, ...]:
    """Every module of the folder with a `RECOGNIZER`; adding a family is adding a file."""
    names = sorted(module.name for module in pkgutil.iter_modules(families.__path__))
    modules = [importlib.import_module(f"{families.__name__}.{name}") for name in names]
    return tuple(module for module in modules if hasattr(module, "RECOGNIZER"))


class _Family:
    """A recognizer, and whether it asked for a line: by a word in it, or in one shortly before."""

    def __init__(self, module: ModuleType) -> None:
        self.recognizer = _recognizer(module)
        self._words = [word.decode() for word in _words(module, "NEEDLES")]
        self._block_words = [word.decode() for word in _words(module, "BLOCK_NEEDLES")]
        self.block_end = 0

    def wants(self, line: WholeLine) -> bool:
        """True for a line that holds a word, and for some lines after one that holds a word of a block."""
        if any(word in line.text for word in self._block_words):
            self.block_end = line.number + BLOCK_LINES
        return line.number <= self.block_end or any(word in line.text for word in self._words)


class _Reader:
    """Gives each line to the recognizers, and keeps what they say."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._prefixes = Prefixes(lambda: stream.layout)
        self._claims = Claims()
        self._events = KeptEvents(self._claims)
        self._voices = Voices(self._claims)
        self._families = [_Family(module) for module in find_families()]
        self._block_end = 0

    def read(self, line: WholeLine) -> None:
        """One whole line."""
        families = self._askers(line)
        for said in self._prefixes.read(line.number, line.text):
            self._claims.see(said)
            self._events.hear(said)
            self._voices.hear(said)
            for family in families:
                for event in family.recognizer.feed(said.line):
                    self._events.keep(event)

    def _askers(self, line: WholeLine) -> list[_Family]:
        if line.is_near:
            return self._families
        if not line.has_word and line.number > self._block_end:
            return []
        families = [family for family in self._families if family.wants(line)]
        self._block_end = max(family.block_end for family in self._families)
        return families

    def end(self) -> Parsed[LogRecord]:
        """What the whole log tells."""
        traces: list[OpTrace] = []
        for family in self._families:
            for record in family.recognizer.end():
                if isinstance(record, OpTrace):
                    traces.append(record)
                else:
                    self._events.keep(record)
        records: list[LogRecord] = [*self._events.events(), *traces, *self._voices.speakers()]
        return Parsed(records=tuple(records), problems=tuple(self._problems()))

    def _problems(self) -> list[str]:
        problems = [
            f"{count} repetitions of one kind of line ({kind}) were left out"
            for kind, count in sorted(self._events.left_out.items())
        ]
        if self._stream.left_out_from is not None:
            problems.append(
                f"too many telling lines: from line {self._stream.left_out_from} on only the end of the log was read"
            )
        return problems


def _recognizer(module: ModuleType) -> Recognizer:
    made: Recognizer = module.RECOGNIZER()
    return made


def _needles() -> tuple[list[bytes], list[bytes]]:
    modules = find_families()
    return (
        [word for module in modules for word in _words(module, "NEEDLES")],
        [word for module in modules for word in _words(module, "BLOCK_NEEDLES")],
    )


def _words(module: ModuleType, name: str) -> list[bytes]:
    return [word.encode() if isinstance(word, str) else word for word in getattr(module, name, ())]
