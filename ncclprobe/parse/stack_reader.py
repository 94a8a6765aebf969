"""What a reader of one format of stacks is, and what the formats share.

In: nothing. Out: `Format`; threads and frames of lines, bounded and fit to show.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ncclprobe.model.frames import Frame, Stack
from ncclprobe.model.stacks import StackDump, Thread
from ncclprobe.parse.text import clean

MAX_FRAMES = 2_000
MAX_THREADS = 20_000
MAX_NAME = 512
_MAX_LINE = 8_192
_MAX_NUMBER = 2**62
# `f(int) const`: parameters say nothing that the name does not, and hold dots and blanks.
_COPY = re.compile(r"(?:@.*|\.(?:part|isra|cold|constprop|lto_priv|llvm)\b.*)$")
_OPERATOR = re.compile(r"operator\s*(?:\(\)|\S{1,3}?)(?=\s*\(|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """`header` matches the lines that begin a thread or a process; `line`, every line that belongs to the format.

    `read` turns lines from the first header on into dumps, whatever else stands between them.
    """

    name: str
    header: re.Pattern[str]
    line: re.Pattern[str]
    read: Callable[[Sequence[str]], list[StackDump]]


@dataclass(slots=True)
class OpenThread:
    """A thread while its lines are read; frames in the order of the text."""

    name: str = ""
    tid: int | None = None
    is_active: bool | None = None
    owns_gil: bool | None = None
    waits_for_gil: bool | None = None
    frames: list[Frame] = field(default_factory=list)

    def add(self, function: str, file: str, line: str | None) -> None:
        """One more frame; those beyond the limit are dropped."""
        if len(self.frames) < MAX_FRAMES:
            self.frames.append(Frame(clean(function, MAX_NAME), clean(file), line_number(line)))

    def closed(self, *, is_outermost_first: bool = False) -> Thread:
        """The thread as the model has it, innermost frame first."""
        stack: Stack = tuple(reversed(self.frames) if is_outermost_first else self.frames)
        return Thread(
            name=clean(self.name, MAX_NAME),
            tid=self.tid,
            stack=stack,
            is_active=self.is_active,
            owns_gil=self.owns_gil,
            waits_for_gil=self.waits_for_gil,
        )


def whole(digits: str | None) -> int | None:
    """A number of the text, None where it is none or larger than any real one."""
    value = int(digits) if digits and len(digits) < 20 else None
    return value if value is not None and value < _MAX_NUMBER else None


def line_number(digits: str | None) -> int | None:
    """From 1; 0 is how debuggers say that they do not know."""
    return whole(digits) or None


def shortened(line: str) -> str:
    """A line as long as any real frame: template names of C++ fill kilobytes, and patterns need a bound."""
    return line[:_MAX_LINE]


def without_parameters(function: str) -> str:
    """`gloo::Buffer::wait(int*) const` -> `gloo::Buffer::wait`; `(anonymous namespace)` and `operator()` stay.

    Versions of symbols (`@@GLIBC_2.34`) and marks of compilers' copies (`.part.0`) go too.
    """
    text = function.replace("(anonymous namespace)", "{anonymous}")
    operator = _OPERATOR.search(text)
    end = text.find("(", operator.end() if operator else 0)
    return _COPY.sub("", text[:end] if end > 0 else text).rstrip()
