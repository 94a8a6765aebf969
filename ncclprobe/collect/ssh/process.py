"""A command that runs on a host over SSH: fed by one thread, read by another, and ended for good.

In: a logged-in `Connection`, a command, and the bytes for its standard input. Out: a `RemoteProcess`.
"""

import contextlib
import shlex
import threading
import time

import paramiko

from ncclprobe.collect.ssh.connection import Connection
from ncclprobe.collect.transport import HostError
from ncclprobe.collect.transport.deadline import remaining_s
from ncclprobe.collect.transport.quoting import quoted
from ncclprobe.collect.transport.tail import Tail

CHUNK_BYTES = 32_768
# From end of input to hanging up: the probe removes its temporary directory in this time.
STOP_GRACE_S = 1.0
CLOSE_LIMIT_S = 2.0
STDERR_WAIT_S = 1.0
UNLINK_WAIT_S = 0.5
POLL_S = 0.1

_LOSSES = (OSError, EOFError, paramiko.SSHException)


def start_process(connection: Connection, command: str, payload: bytes, wait_s: float) -> "SshProcess":
    """Runs `command` by `/bin/sh`, whatever the account's login shell is. HostError when the host will not."""
    try:
        channel = connection.transport.open_session(timeout=wait_s)
        channel.exec_command(f"exec /bin/sh -c {shlex.quote(command)}")
    except _LOSSES as error:
        remaining_s(connection.deadline)
        text = getattr(error, "text", None) or str(error).replace("Channel closed.", "it refuses the request")
        raise HostError(
            f"the host lets us in and runs no command: {quoted(text) or type(error).__name__}",
            "see its sshd_config (MaxSessions, ForceCommand), the account's shell and limits, and sshd's log",
        ) from None
    return SshProcess(connection, channel, payload)


class SshProcess:
    """See `RemoteProcess`. The connection's own end at the deadline ends every wait here."""

    def __init__(self, connection: Connection, channel: paramiko.Channel, payload: bytes) -> None:
        self._connection = connection
        self._channel = channel
        self._received_bytes = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._stderr = Tail(channel.recv_stderr, lambda: None)
        self._feeder = threading.Thread(target=self._feed, args=(payload,), name="stdin over ssh", daemon=True)
        self._feeder.start()

    def read(self, size: int) -> bytes:
        """See `RemoteProcess.read`."""
        remaining_s(self._connection.deadline)
        try:
            data: bytes = self._channel.recv(size)
        except _LOSSES:
            data = b""
        remaining_s(self._connection.deadline)
        if not data and not self._has_ended():
            raise self._loss()
        self._received_bytes += len(data)
        return data

    def finish(self) -> tuple[int | None, str]:
        """See `RemoteProcess.finish`; the status of a command that a signal ended is unknown."""
        self._channel.status_event.wait(remaining_s(self._connection.deadline))
        left_s = remaining_s(self._connection.deadline)
        status = self._channel.exit_status
        return status if status >= 0 else None, self._stderr.text(min(STDERR_WAIT_S, left_s))

    def close(self) -> None:
        """See `RemoteProcess.close`: end of input, a short time to clean up, then the connection is closed."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
        # In a thread: a peer that takes no more bytes would hold us up.
        ending = threading.Thread(target=self._end, name="end of ssh", daemon=True)
        ending.start()
        ending.join(CLOSE_LIMIT_S)
        self._connection.close()

    def _end(self) -> None:
        with contextlib.suppress(*_LOSSES):
            self._channel.shutdown_write()
            self._channel.settimeout(POLL_S)
            end = time.monotonic() + STOP_GRACE_S
            while not self._channel.status_event.is_set() and time.monotonic() < end:
                self._discard_output()

    def _discard_output(self) -> None:
        """Takes what the command still prints, so that it is not stuck in printing it."""
        try:
            if not self._channel.recv(CHUNK_BYTES):
                self._channel.status_event.wait(POLL_S)
        except TimeoutError:
            return

    def _feed(self, payload: bytes) -> None:
        with contextlib.suppress(*_LOSSES):  # a loss is told by `read`
            offset = 0
            while offset < len(payload) and not self._closing.is_set():
                sent = self._channel.send(payload[offset : offset + CHUNK_BYTES])
                if sent == 0:
                    return
                offset += sent

    def _has_ended(self) -> bool:
        """Whether no bytes mean the end of the output, and not that the connection was lost."""
        channel = self._channel
        if channel.eof_received or (channel.status_event.is_set() and channel.exit_status >= 0):
            return True
        # Channels are unlinked a moment before a broken transport says that it is one.
        self._connection.transport.join(UNLINK_WAIT_S)
        return bool(self._connection.transport.is_active())

    def _loss(self) -> HostError:
        if self._closing.is_set():
            return HostError("the connection was closed", "collect again")
        return HostError(
            f"the connection was lost after {self._received_bytes:,} bytes of the answer",
            "collect again; if it is lost again, look at the host and its network",
        )
