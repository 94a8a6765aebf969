"""Runs the command on this machine, as a remote one would run: own session, fed, read, bounded, ended.

In: a command and the bytes for its standard input. Out: a `RemoteProcess`.
"""

import contextlib
import os
import select
import signal
import subprocess
import threading
import time

from ncclprobe.collect.hosts import Host
from ncclprobe.collect.transport import HostError, RemoteProcess
from ncclprobe.collect.transport.deadline import remaining_s
from ncclprobe.collect.transport.tail import Tail

STOP_GRACE_S = 2.0  # from end of input to SIGTERM: the probe removes its temporary directory in this time
TERM_GRACE_S = 1.0  # from SIGTERM to SIGKILL
POLL_S = 0.1
STDERR_WAIT_S = 1.0


class LocalTransport:
    """Starts commands on this machine, whatever the host's address says."""

    def start(self, host: Host, command: str, payload: bytes, deadline: float) -> RemoteProcess:
        """Runs `command` by `/bin/sh`; see `Transport.start`. HostError when no process can be made."""
        remaining_s(deadline)
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise HostError(
                f"this machine starts no process: {error}", "free memory or processes here, then try again"
            ) from None
        return _LocalProcess(process, payload, deadline)


class _LocalProcess:
    """A running command. Its exit is looked at without reaping it until `close`, so its group's id stays its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", payload: bytes, deadline: float) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("the process must have pipes")
        self._process = process
        self._deadline = deadline
        self._stdout = process.stdout
        self._stdout_lock = threading.Lock()
        self._closing = threading.Event()
        self._close_lock = threading.Lock()
        self._closed = False
        self._ended = False
        self._status: int | None = None
        self._stderr = Tail(process.stderr.read, process.stderr.close)
        stdin_fd = process.stdin.fileno()
        os.set_blocking(stdin_fd, False)
        self._feeder = threading.Thread(target=self._feed, args=(stdin_fd, payload), name="stdin", daemon=True)
        self._feeder.start()

    def read(self, size: int) -> bytes:
        """See `RemoteProcess.read`."""
        while True:
            data = self._read_ready(size, min(POLL_S, remaining_s(self._deadline)))
            if data is not None:
                return data

    def finish(self) -> tuple[int | None, str]:
        """See `RemoteProcess.finish`; a command ended by signal N has status 128 + N, as `sh` would say."""
        while not self._has_ended():
            time.sleep(min(0.005, remaining_s(self._deadline)))
        return self._status, self._stderr.text(min(STDERR_WAIT_S, remaining_s(self._deadline)))

    def close(self) -> None:
        """See `RemoteProcess.close`: end of input, then SIGTERM, then SIGKILL to all of the command's group."""
        with self._close_lock:
            if self._closed:
                return
            self._closing.set()  # the feeder closes standard input
            if not self._wait_for_exit(STOP_GRACE_S):
                self._signal_group(signal.SIGTERM)
                self._wait_for_exit(TERM_GRACE_S)
            self._signal_group(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(TERM_GRACE_S)  # in uninterruptible sleep it stays, and nobody can help that
            self._feeder.join(TERM_GRACE_S)
            with self._stdout_lock:
                self._stdout.close()
            self._closed = True

    def _read_ready(self, size: int, wait_s: float) -> bytes | None:
        with self._stdout_lock:
            if self._stdout.closed:
                raise HostError("the command was ended", "collect again")
            fd = self._stdout.fileno()
            return os.read(fd, size) if _is_ready(fd, select.POLLIN, wait_s) else None

    def _feed(self, stdin_fd: int, payload: bytes) -> None:
        """Writes the payload as the command takes it, and closes standard input when the process is to end."""
        offset = 0
        with contextlib.suppress(OSError):  # it reads no more: its own affair, shown by its exit status
            while offset < len(payload) and not self._closing.is_set():
                if _is_ready(stdin_fd, select.POLLOUT, POLL_S):
                    with contextlib.suppress(BlockingIOError):
                        offset += os.write(stdin_fd, payload[offset : offset + 65_536])
        self._closing.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _has_ended(self) -> bool:
        """Whether the command has ended; remembers its status."""
        if self._ended:
            return True
        try:
            state = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # SIGCHLD is ignored here: the kernel has reaped it, its status is lost
            self._ended = True
            return True
        if state is not None:
            self._ended = True
            self._status = state.si_status if state.si_code == os.CLD_EXITED else 128 + state.si_status
        return self._ended

    def _wait_for_exit(self, wait_s: float) -> bool:
        """Whether the command ends within `wait_s`; what it still prints is thrown away, so that it can."""
        end = time.monotonic() + wait_s
        while not self._has_ended():
            if time.monotonic() >= end:
                return False
            self._discard_output()
        return True

    def _discard_output(self) -> None:
        with contextlib.suppress(OSError, HostError):
            if self._read_ready(65_536, 0.01) == b"":
                time.sleep(0.01)

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _is_ready(fd: int, event: int, wait_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(wait_s * 1000))
