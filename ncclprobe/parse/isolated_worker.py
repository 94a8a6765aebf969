"""The inside of a worker process: one file after another, each under limits.

In: pairs of parser and bytes from a connection. Out: for each the result, on the same connection. The process ends when
the other end is closed, or when a file exceeds its processor time (by SIGPROF).
"""

import faulthandler
import gc
import os
import resource
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ncclprobe.model.errors import ParseError
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.text import clean

Parser = Callable[[Any], Parsed[Any]]
Result = Parsed[Any] | ParseError

MEMORY_BYTES = 2 << 30
CPU_SECONDS = 10.0
BYTES_PER_S = 10e6  # a log of text that is new in every line takes half of that time
_TOO_LARGE = "refused: reading it needs more memory than any such file should"


def cpu_seconds(data: bytes | Path) -> float:
    """How long one file may take: bytes at hand are few; a log that is streamed may be of any length."""
    size_bytes = 0
    if isinstance(data, Path):
        with suppress(OSError):
            size_bytes = data.stat().st_size
    return CPU_SECONDS + size_bytes / BYTES_PER_S


def work(connection: Connection, inherited: Iterable[Connection]) -> None:
    """Runs in the worker. `inherited` ends of other connections are closed: who holds one hides that it was closed."""
    for other in inherited:
        other.close()
    _prepare()
    with suppress(EOFError, OSError):  # the process that gives the files is gone
        while True:
            parser, data = connection.recv()
            _limit(cpu_seconds(data))
            result = parse(parser, data)
            try:
                connection.send(result)
            except MemoryError:
                connection.send(ParseError(_TOO_LARGE))


def parse(parser: Parser, data: bytes | Path) -> Result:
    """What the parser says. All it can raise becomes a ParseError."""
    try:
        return parser(data)
    except ParseError as error:
        return error
    except MemoryError:
        return ParseError(_TOO_LARGE)
    except Exception as error:  # noqa: BLE001 - a parser's bug on one file must cost that file only
        return ParseError(f"cannot be read: {type(error).__name__}: {clean(str(error), 120)}")


def _prepare() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    for number in (signal.SIGTERM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)
    faulthandler.disable()  # the exit status tells of a crash
    _set_soft_limit(resource.RLIMIT_CORE, 0)
    # Should memory run out all the same, the kernel is to take this process and no other.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    # A dump makes tens of thousands of containers at once, none of them garbage.
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)


def _limit(seconds: float) -> None:
    """For the next file, on top of what this process uses already: a parent with torch in it maps tens of GiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _set_soft_limit(resource.RLIMIT_AS, pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_BYTES)
    # Not RLIMIT_CPU: it is a total, and the kernel counts ticks where getrusage tells measured time.
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _set_soft_limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
