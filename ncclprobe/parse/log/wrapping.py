"""Lines that a narrow terminal broke, put together again.

In: heard lines, and the layout of the log. Out: `WholeLine`s, without colours.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ncclprobe.parse.log.layout import Layout, plain
from ncclprobe.parse.log.stream import MAX_LINE_BYTES, Heard


@dataclass(slots=True)
class WholeLine:
    """A line with the number of its first part."""

    number: int
    text: str
    is_near: bool
    has_word: bool


def whole_lines(heard: Iterable[Heard], layout: Callable[[], Layout]) -> Iterator[WholeLine]:
    """A line as wide as the terminal goes on in the next one, unless that begins like a line.

    Where the break fell on a blank, a copy from the screen has lost it, and the line is one shorter.
    """
    line: WholeLine | None = None
    last, missing = 0, -1
    for part in heard:
        text, shape = plain(part.raw.decode("utf-8", "replace")), layout()
        is_next = line is not None and missing in (0, 1) and part.number == last + 1
        if line is not None and is_next and len(line.text) < MAX_LINE_BYTES and not shape.is_start(text):
            line.text += " " * missing + text
            line.has_word = True  # one may have been broken
        else:
            if line is not None:
                yield line
            line = WholeLine(part.number, text, part.is_near, part.has_word)
        last = part.number
        missing = shape.wrap_width - len(text) if shape.wrap_width else -1
    if line is not None:
        yield line
