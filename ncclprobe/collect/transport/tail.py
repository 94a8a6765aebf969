"""The end of a command's standard error, kept while it runs so that the command never blocks on it.

In: a function that reads the next bytes (none at the end), and one that closes the stream.
Out: the last few kilobytes as text.
"""

import threading
from collections.abc import Callable

TAIL_BYTES = 4096


class Tail:
    """Reads in a thread of its own until the end of the stream, keeps the last `TAIL_BYTES`, and closes it."""

    def __init__(self, read: Callable[[int], bytes], close: Callable[[], None]) -> None:
        self._read = read
        self._close = close
        self._kept = b""
        self._thread = threading.Thread(target=self._drain, name="stderr tail", daemon=True)
        self._thread.start()

    def text(self, wait_s: float) -> str:
        """What has been kept, once the stream has ended or `wait_s` seconds have passed."""
        self._thread.join(max(0.0, wait_s))
        return self._kept.decode("utf-8", "replace")

    def _drain(self) -> None:
        try:
            while data := self._read(32_768):
                self._kept = (self._kept + data)[-TAIL_BYTES:]
        except (OSError, ValueError, EOFError):  # the stream was closed under us: what is kept is what there is
            return
        finally:
            self._close()
