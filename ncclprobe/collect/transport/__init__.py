"""Ways to run one command on a host, feed it, and read what it prints; one file each.

In: a host, a command, the bytes for its standard input. Out: a `RemoteProcess` to read its standard output from.
"""

from typing import Protocol

from ncclprobe.collect.hosts import Host
from ncclprobe.model.errors import NcclprobeError


class HostError(NcclprobeError):
    """One host could not be asked, or its answer broke off. Becomes one gap; never ends the collection."""


class SilentHostError(HostError):
    """Nothing came back from the host's address: it is down, cut off, or hangs. A refusal is an answer, not silence."""


class RemoteProcess(Protocol):
    """A command running on a host. Its standard input stays open until `close`: end of input tells it to stop."""

    def read(self, size: int) -> bytes:
        """At most `size` bytes of standard output, at least one unless it ended; HostError on loss or the deadline."""

    def finish(self) -> tuple[int | None, str]:
        """Exit status (None if unknown) and the end of standard error, after `read` returned no bytes."""

    def close(self) -> None:
        """Ends the command and lets go of the connection; never raises."""


class Transport(Protocol):
    """Starts commands on hosts."""

    def start(self, host: Host, command: str, payload: bytes, deadline: float) -> RemoteProcess:
        """Runs `command` by the host's `sh` and feeds it `payload`, without closing its standard input.

        `deadline` is a `time.monotonic()` moment, after which every call raises HostError. HostError too when the host
        cannot be reached.
        """
