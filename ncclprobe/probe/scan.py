"""Looks at every process of the host, and is never held up by a sick one.

In: /proc. Out: a `Scan`: the processes whose environment names a rank, any other on request, and who would not be read.

Reading the environment of a process waits for its memory lock, which a driver that hangs may hold for ever: the very
rank we look for. So a thread does the reading, and when one process keeps it too long another thread goes on with the
rest.
"""

import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ncclprobe.probe import identity, proc

_MARK = re.compile(r"(?:^|\0)(?:{})=".format("|".join((*identity.RANK, *identity.SCHEDULER_RANK))).encode())
_PYTHON = re.compile(r"^(python|pypy|pt_main_thread)")
_PATIENCE_S, _LESS_PATIENCE_S = 1.0, 0.25
_MAX_STUCK = 24
_ENVIRON_LIMIT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One process as /proc shows it. `group` is its process group; `environ` is empty where it was not read."""

    pid: int
    parent_pid: int
    group: int
    uid: int
    inner_pid: int
    name: str
    arguments: tuple[str, ...]
    is_python: bool
    environ: Mapping[str, str]

    @property
    def command(self) -> str:
        """The command line, for people."""
        return " ".join(self.arguments)[:500]


@dataclass(slots=True)
class Scan:
    """`marked` processes name a rank; `unmarked` ones do not. `refused`: Python that may not be read.

    `stuck` ones would not be read in time; `unread` were not tried any more after too many of those.
    """

    root: Path = proc.ROOT
    marked: dict[int, Seen] = field(default_factory=dict)
    unmarked: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    stuck: list[int] = field(default_factory=list)
    unread: int = 0
    _others: dict[int, "Seen | None"] = field(default_factory=dict)

    def get(self, pid: int) -> Seen | None:
        """Any process, marked or not; None when it is gone, or stuck."""
        if pid in self.marked or pid in self.stuck:
            return self.marked.get(pid)
        if pid not in self._others:
            self._others[pid] = _look(pid, b"", self.root)
        return self._others[pid]

    def ancestors(self, pid: int) -> list[int]:
        """Parent, grandparent and so on, as far as they can be seen."""
        found: list[int] = []
        process = self.get(pid)
        while process is not None and process.parent_pid > 0 and process.parent_pid not in found:
            found.append(process.parent_pid)
            process = self.get(process.parent_pid)
        return found


def scan(root: Path = proc.ROOT) -> Scan:
    """Looks at all processes but our own; about 0.1 ms each."""
    result = Scan(root)
    waiting = iter([pid for pid in proc.pids(root) if pid != os.getpid()])
    patience_s = _PATIENCE_S
    while len(result.stuck) < _MAX_STUCK:
        stuck = _Reader(waiting, result).read_on(patience_s)
        if stuck is None:
            break
        result.stuck.append(stuck)
        patience_s = _LESS_PATIENCE_S
    result.unread = len(list(waiting))
    return result


class _Reader:
    """Reads one process after the other in a thread, which is abandoned with the process that keeps it."""

    def __init__(self, waiting: Iterator[int], result: Scan) -> None:
        self._waiting = waiting
        self._result = result
        self._lock = threading.Lock()
        self._current = 0
        self._done = 0
        self._is_abandoned = False

    def read_on(self, patience_s: float) -> int | None:
        """Reads as far as it gets: to the end (None), or to a process that does not let go of the reader."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        while True:
            before = self._done
            thread.join(patience_s)
            with self._lock:
                if not thread.is_alive():
                    return None
                if self._done == before:
                    self._is_abandoned = True
                    return self._current

    def _run(self) -> None:
        for pid in self._waiting:
            self._current = pid
            environ = proc.read(pid, "environ", _ENVIRON_LIMIT_BYTES, self._result.root)
            is_marked = environ is not None and _MARK.search(environ) is not None
            process = _look(pid, environ or b"", self._result.root) if is_marked else None
            is_refused = environ is None and is_python(pid, self._result.root)
            with self._lock:
                if self._is_abandoned:
                    return
                self._done += 1
                if process is not None:
                    self._result.marked[pid] = process
                elif is_refused:
                    self._result.refused.append(pid)
                elif environ and not is_marked:
                    self._result.unmarked.append(pid)


def is_python(pid: int, root: Path = proc.ROOT) -> bool:
    """Whether the kernel's name of a process is that of an interpreter, or the one torch gives it."""
    name = proc.read(pid, "comm", root=root) or b""
    return _PYTHON.match(name.decode("utf-8", "replace")) is not None


def _look(pid: int, environ: bytes, root: Path) -> Seen | None:
    """The process; None when it is gone, a zombie or a thread of the kernel."""
    fields = proc.status(pid, root)
    command = (proc.read(pid, "cmdline", root=root) or b"").decode("utf-8", "replace").rstrip("\0")
    if not fields or not command:
        return None
    arguments = tuple(command.split("\0"))
    program = os.path.basename(proc.link(pid, "exe", root) or arguments[0])
    pairs = (item.split("=", 1) for item in environ.decode("utf-8", "replace").split("\0") if "=" in item)
    return Seen(
        pid=pid,
        parent_pid=int(fields.get("PPid", "0")),
        group=int(fields.get("NSpgid", str(pid)).split()[0]),
        uid=int(fields.get("Uid", "0").split()[0]),
        inner_pid=int(fields.get("NSpid", str(pid)).split()[-1]),
        name=fields.get("Name", ""),
        arguments=arguments,
        is_python=any(_PYTHON.match(word) for word in (program, fields.get("Name", ""))),
        environ=dict(pairs),
    )
