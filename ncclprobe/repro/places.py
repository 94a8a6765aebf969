"""Scripts of ours that run on hosts, on many at once.

In: hosts, each with a way to start a command on it; the source of a script, and what it reads. Out: a `Process` for
each host, and the lines that one prints. Nothing of ours need be installed there: the source goes along.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ncclprobe.model.errors import NcclprobeError

MAX_AT_ONCE = 64
_MARK = b"ncclprobe-repro-starts"
# What a shell's start-up files print comes before the mark.
_BOOTSTRAP = (
    f'import sys; print("{_MARK.decode()}", flush=True); exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))'
)
_CHUNK_BYTES = 1 << 16
_MAX_LINE_BYTES = 32 << 20
_MAX_QUOTE = 200

T = TypeVar("T")


class Process(Protocol):
    """A command that runs on a host; its standard input ends with `close`. All but that may raise NcclprobeError."""

    def read(self, size: int) -> bytes:
        """At most `size` bytes of its standard output; none at the end."""

    def finish(self) -> tuple[int | None, str]:
        """After the end: the exit status, None if unknown, and the end of standard error."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A host. `start` runs a command on it, which it feeds, up to a `time.monotonic()` moment."""

    name: str
    start: Callable[[str, bytes, float], Process]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A program of the standard library alone, what it reads, and how Python is called for it."""

    python: str
    flags: str
    source: bytes
    text: str = ""

    @property
    def command(self) -> str:
        """For the host's shell."""
        return f"exec {shlex.quote(self.python)} {self.flags} -c {shlex.quote(_BOOTSTRAP)}"

    @property
    def payload(self) -> bytes:
        """What the command reads: the size of the source, the source, the text."""
        return b"%d\n" % len(self.source) + self.source + self.text.encode()


def at_each(places: Sequence[Place], work: Callable[[Place], T], discard: Callable[[T], None]) -> list[T]:
    """What `work` yields for each place. When one fails, the others go to `discard`, and its error names the place."""
    with ThreadPoolExecutor(min(MAX_AT_ONCE, len(places)), thread_name_prefix="place") as pool:
        futures = [pool.submit(_named, place, work) for place in places]
        try:
            return [future.result() for future in futures]
        except BaseException:
            _discard(futures, discard)
            raise


def _named(place: Place, work: Callable[[Place], T]) -> T:
    try:
        return work(place)
    except NcclprobeError as error:
        raise type(error)(f"{place.name}: {error}", error.advice) from None


def _discard(futures: "list[Future[T]]", discard: Callable[[T], None]) -> None:
    for future in futures:
        future.cancel()
    wait(futures)
    for future in futures:
        if not future.cancelled() and future.exception() is None:
            discard(future.result())


def lines(process: Process) -> Iterator[str]:
    """What a script prints, line by line, up to its end. NcclprobeError for a line without end, or a lost host."""
    rest, has_started = b"", False
    while chunk := process.read(_CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > _MAX_LINE_BYTES:
            raise NcclprobeError("it sends a line that does not end", "see that nothing else answers there")
        for line in whole:
            if has_started:
                yield line.decode(errors="replace")
            has_started = has_started or line.strip() == _MARK


def shown(text: str) -> str:
    """Words of a host on one line, fit to be shown."""
    line = " ".join(text.split())[:_MAX_QUOTE]
    return "".join(character if character.isprintable() else "?" for character in line)
