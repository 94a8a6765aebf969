"""What Python says above a traceback that ends no process: of a thread, a task, a destructor, a logging handler.

In: lines of each speaker. Out: what the traceback below them is of.
"""

import re
from enum import Enum

NEEDLES = (
    b"Exception in thread ",
    b"Exception ignored in",
    b"Exception ignored on",
    b"--- Logging error ---",
    b"exception was never retrieved",
    b"Exception in callback ",
)

_THREAD = re.compile(r"^(?:Exception in (?:thread|callback) |(?:Task|Future) exception was never retrieved)")
_IGNORED = re.compile(r"^(?:Exception ignored (?:in|on)\b|--- Logging error ---)")
_NEAR = 3  # lines of the same speaker
_MAX_SPEAKERS = 1_024


class Aside(Enum):
    """THREAD: only a thread or a task ended. IGNORED: Python dropped the exception, and nothing ended."""

    NONE = "none"
    THREAD = "thread"
    IGNORED = "ignored"


class Asides:
    """The last such line of each speaker, for a few lines."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Aside, int]] = {}

    def see(self, speaker: str, text: str) -> None:
        """Any line."""
        kind = Aside.NONE
        if "xception" in text or text.startswith("---"):
            kind = Aside.THREAD if _THREAD.match(text) else Aside.IGNORED if _IGNORED.match(text) else Aside.NONE
        if kind is not Aside.NONE and len(self._last) < _MAX_SPEAKERS:
            self._last[speaker] = (kind, _NEAR)
        elif speaker in self._last:
            known, left = self._last[speaker]
            if left == 0:
                del self._last[speaker]
            else:
                self._last[speaker] = (known, left - 1)

    def before(self, speaker: str) -> Aside:
        """What the traceback that begins now is of."""
        kind, _ = self._last.pop(speaker, (Aside.NONE, 0))
        return kind
