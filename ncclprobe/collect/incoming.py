"""What comes in from one host, as a file that the tar reader reads.

In: a `RemoteProcess`. Out: its bytes after the probe's start mark, no more than a host may send.
"""

from ncclprobe.bundle.store import Limits
from ncclprobe.collect.transport import RemoteProcess
from ncclprobe.probe.harvest import HOST_LIMIT_BYTES, MAX_ITEMS
from ncclprobe.probe.stream import START_MARK

_CHUNK_BYTES = 1 << 16
_MAX_PREAMBLE_BYTES = 64 << 10


class Incoming:
    """`preamble` is what came before the mark: login messages and the like. `size_bytes` counts what came after it."""

    limits = Limits(members=2 * MAX_ITEMS + 100, total_bytes=HOST_LIMIT_BYTES + (64 << 20))

    def __init__(self, process: RemoteProcess) -> None:
        self._process = process
        self._kept = b""
        self._start = b""
        self.preamble = b""
        self.size_bytes = 0
        self.has_started = False

    def skip_to_start(self) -> bool:
        """Reads up to the mark; whether it came."""
        while len(self.preamble) <= _MAX_PREAMBLE_BYTES and (chunk := self._process.read(_CHUNK_BYTES)):
            self.preamble += chunk
            before, mark, after = self.preamble.partition(START_MARK)
            if mark:
                self.preamble, self._kept, self.has_started = before, after, True
                self.size_bytes = len(after)
                return True
        return False

    def read(self, size: int) -> bytes:
        """The next bytes as soon as there are some, at most `size`; none at the end."""
        if not self._kept:
            self._kept = self._process.read(_CHUNK_BYTES)
            self.size_bytes += len(self._kept)
        self._start, self._kept = self._kept[:size], self._kept[size:]
        return self._start

    def seek(self, offset: int) -> int:
        """Takes back the last `read`: the tar reader looks at the first bytes and then goes back to them."""
        self._kept, self._start = self._start + self._kept, b""
        return offset
