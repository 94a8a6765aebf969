"""Frames of Python code, as py-spy and the flight recorder name them.

In: nothing. Out: `Frame`, and the rule that tells the user's own code from torch, frameworks and the interpreter.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Folders of installed code, and the interpreter's own. `<frozen importlib._bootstrap>` and `<string>` have no file.
_LIBRARY = re.compile(r"(^|/)(site-packages|dist-packages)/|(^|/)lib(64)?/python\d(\.\d+)?/|^<")
# Frames of C and C++ (py-spy --native, torch with TORCH_NCCL_TRACE_CPP_STACK): a shared object, a source, or nothing.
_NATIVE = re.compile(r"^$|^\?\?|\.so(\.\d+)*$|\.(c|cc|cpp|cxx|cu|cuh|h|hpp|S)$|(^|/)python\d(\.\d+)?$")
_STDLIB_SHORT = re.compile(
    r"^(threading|queue|runpy|selectors|socket|ssl|subprocess|concurrent/|asyncio/|multiprocessing/)"
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python frame. `line` counts from 1; 0 or None mean unknown."""

    function: str
    file: str
    line: int | None = None

    @property
    def short_function(self) -> str:
        """The last dotted part: py-spy 0.4.3 prints qualified names on Python 3.11 and later, older ones do not."""
        return self.function.rsplit(".", 1)[-1]

    @property
    def is_user_code(self) -> bool:
        """Whether the file is Python code outside installed packages and the interpreter."""
        return not any(pattern.search(self.file) for pattern in (_LIBRARY, _STDLIB_SHORT, _NATIVE))

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


Stack = tuple[Frame, ...]
"""Frames of one thread, innermost first."""


def innermost_user_frame(stack: Iterable[Frame]) -> Frame | None:
    """The user's own line: the innermost frame outside torch, frameworks and the interpreter."""
    return next((frame for frame in stack if frame.is_user_code), None)
