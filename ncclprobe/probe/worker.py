"""Work in a child process, because reading /proc, NVML or NFS can block for ever on a sick host.

In: a generator function of JSON-ready messages. Out: those messages as they come, and how the child ended.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ncclprobe.probe.lifeline import die_with_parent

Message = dict[str, Any]
_END = "end"  # the last message: None when all went well, else what went wrong
_READ_BYTES = 1 << 18
_MAX_LINE_BYTES = 1 << 20
_REAP_S = 0.2


class Worker:
    """A forked child that sends one JSON line a message over a pipe."""

    def __init__(self, produce: Callable[[], Iterator[Message]]) -> None:
        read_fd, write_fd = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(read_fd)
            _run_child(produce, write_fd, parent)
        os.close(write_fd)
        os.set_blocking(read_fd, False)
        self.read_fd = read_fd
        self.has_ended = False
        self.failure: str | None = None
        self._buffer = b""
        self._status: int | None = None

    def messages(self) -> list[Message]:
        """What has come since the last call, of a flood a part of it; `has_ended` and `failure` may change."""
        try:
            chunk = os.read(self.read_fd, _READ_BYTES)
        except BlockingIOError:
            return []
        if not chunk:
            self._end(self._how_it_died())
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        if len(self._buffer) > _MAX_LINE_BYTES:
            self._end(f"it sent a message of more than {_MAX_LINE_BYTES} bytes")
        return [message for message in map(self._parse, lines) if message]

    def close(self) -> None:
        """Ends the child and what it started. One in uninterruptible sleep is left to the kernel, not waited for."""
        with suppress(OSError):  # a signal may make us close twice
            os.close(self.read_fd)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self._status is None:
            os.kill(
                self.pid, signal.SIGKILL
            )  # before it has a group of its own; a zombie at the latest, so never another
            self._reap()

    def _parse(self, line: bytes) -> Message | None:
        if self.has_ended:
            return None
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._end("it sent something that is no message")
            return None
        if _END not in message:
            return message
        self._end(message[_END])
        return None

    def _how_it_died(self) -> str:
        """For one that closed its pipe without a last word."""
        limit = time.monotonic() + _REAP_S
        while not self._reap() and time.monotonic() < limit:
            time.sleep(0.002)
        if self._status is None:
            return "it closed its pipe and lives on"
        if os.WIFSIGNALED(self._status):
            return f"it was killed by {signal.Signals(os.WTERMSIG(self._status)).name}"
        return f"it exited with status {os.waitstatus_to_exitcode(self._status)}"

    def _reap(self) -> bool:
        if self._status is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if done else None
        return self._status is not None

    def _end(self, failure: str | None) -> None:
        if not self.has_ended:
            self.has_ended, self.failure = True, failure


def _run_child(produce: Callable[[], Iterator[Message]], write_fd: int, parent: int) -> None:
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(parent, signal.SIGKILL)
        _let_go_of_standard_streams()
        with os.fdopen(write_fd, "wb") as pipe:
            for message in _guarded(produce):
                pipe.write(json.dumps(message).encode() + b"\n")
                pipe.flush()
    finally:
        os._exit(0)


def _let_go_of_standard_streams() -> None:
    """What it prints must not end up in the tar stream; and one that cannot die must not keep the connection open."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def _guarded(produce: Callable[[], Iterator[Message]]) -> Iterator[Message]:
    """The messages, and a last one that says whether the work failed: one sick source must not hide the others."""
    failure = None
    try:
        yield from produce()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a sick host raises becomes one gap
        failure = f"{type(error).__name__}: {error}"[:300]
    yield {_END: failure}
