"""The lines of a log that are worth looking at, from a stream of any length in bounded memory.

In: an open log, and the words that make a line worth it. Out: `Heard` lines with their numbers: all of both ends of the
log, and of what lies between those the lines that hold a word, and some that follow them.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ncclprobe.parse.log.layout import Layout
from ncclprobe.parse.log.needles import Needles

HEAD_BYTES = 1 << 20
TAIL_BYTES = 16 << 20
NEAR_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 10
# A traceback of 30 frames in 8 ranks' voices at once is about this long.
BLOCK_LINES = 400
# Continuations of a line that a narrow terminal broke.
WRAPPED_LINES = 12
MAX_BETWEEN = 300_000
_CHUNK_BYTES = 1 << 20
_SAMPLE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Heard:
    """A line without its end. A carriage return ends a line too, but only line feeds count: `number` may repeat.

    `is_near`: within 1 MiB of either end of the log, where every line may matter, not only one that `has_word`.
    """

    number: int
    raw: bytes
    is_near: bool = False
    has_word: bool = True


@dataclass(frozen=True, slots=True)
class _Piece:
    """Whole lines, from line `number` on, `offset` bytes into the log."""

    number: int
    offset: int
    data: bytes


class Stream:
    """Reads the log once; `head` is what was read of it before.

    `layout` is what its ends look like: the near end, then the far one when that is reached.
    """

    def __init__(self, log: BinaryIO, words: Iterable[bytes], block_words: Iterable[bytes], head: bytes = b"") -> None:
        self.layout = Layout()
        self.line_count = 0
        self.left_out_from: int | None = None
        self._log, self._head = log, head
        self._block_words = list(block_words)
        self._needles = Needles([*words, *self._block_words])
        self._block_left = 0
        self._between = 0

    def lines(self) -> Iterator[Heard]:
        """All heard lines in order."""
        ahead: deque[_Piece] = deque()
        ahead_bytes = 0
        for piece in _pieces(self._log, self._head):
            ahead.append(piece)
            ahead_bytes += len(piece.data)
            while ahead_bytes - len(ahead[0].data) >= TAIL_BYTES:
                self._look(ahead)
                oldest = ahead.popleft()
                ahead_bytes -= len(oldest.data)
                is_head = oldest.offset < HEAD_BYTES
                yield from self._all(oldest, is_near=True) if is_head else self._telling(oldest)
        if ahead:
            self.layout = Layout.of(_sample(ahead))
        for piece in ahead:
            is_near = ahead_bytes <= NEAR_BYTES + len(piece.data) or piece.offset < HEAD_BYTES
            ahead_bytes -= len(piece.data)
            yield from self._all(piece, is_near=is_near)

    def _look(self, ahead: deque[_Piece]) -> None:
        if ahead[0].offset == 0:
            self.layout = Layout.of(_sample(ahead))

    def _all(self, piece: _Piece, *, is_near: bool) -> Iterator[Heard]:
        self.line_count = piece.number + piece.data.count(b"\n")
        places = deque(() if is_near else self._needles.places(piece.data))
        number, end = piece.number, -1
        for line in piece.data.split(b"\n"):
            end += len(line) + 1
            has_word = is_near
            while places and places[0] < end:
                has_word = True
                places.popleft()
            for part in line.split(b"\r") if b"\r" in line else (line,):
                if part:
                    yield Heard(number, part[:MAX_LINE_BYTES], is_near, has_word)
            number += 1

    def _telling(self, piece: _Piece) -> Iterator[Heard]:
        data, at, number = piece.data, 0, piece.number
        self.line_count = number + data.count(b"\n")
        places = deque(self._needles.places(data))
        while at < len(data):
            while places and places[0] < at:
                places.popleft()
            if self._block_left == 0:
                if not places:
                    return
                start = _line_start(data, places[0], at)
                number += data.count(b"\n", at, start)
                at = start
            end = _line_end(data, at)
            if end > at and self._may_speak(number):
                yield Heard(number, data[at : min(end, at + MAX_LINE_BYTES)])
            self._count_block(data, at, end, has_word=bool(places) and places[0] < end)
            number += data[end : end + 1] == b"\n"
            at = end + 1

    def _may_speak(self, number: int) -> bool:
        self._between += 1
        if self._between > MAX_BETWEEN and self.left_out_from is None:
            self.left_out_from = number
        return self.left_out_from is None

    def _count_block(self, data: bytes, start: int, end: int, *, has_word: bool) -> None:
        self._block_left = max(0, self._block_left - 1)
        if not has_word:
            return
        if any(data.find(word, start, end) >= 0 for word in self._block_words):
            self._block_left = BLOCK_LINES
        elif self.layout.wrap_width:
            self._block_left = max(self._block_left, WRAPPED_LINES)


def _sample(ahead: deque[_Piece]) -> bytes:
    """Both ends of what is at hand."""
    first, last = ahead[0].data[:_SAMPLE_BYTES], ahead[-1].data[-_SAMPLE_BYTES:]
    return first if len(ahead) == 1 else first + b"\n" + last.partition(b"\n")[2]


def _pieces(log: BinaryIO, head: bytes) -> Iterator[_Piece]:
    number, offset, rest = 1, 0, head
    while chunk := log.read(_CHUNK_BYTES):
        data = rest + chunk
        # A line longer than a chunk is cut: that is no text worth more.
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 or len(data)
        yield _Piece(number, offset, data[:cut])
        number += data.count(b"\n", 0, cut)
        offset += cut
        rest = data[cut:]
    if rest:
        yield _Piece(number, offset, rest)


def _line_start(data: bytes, place: int, least: int) -> int:
    return max(data.rfind(b"\n", least, place) + 1, data.rfind(b"\r", least, place) + 1, least)


def _line_end(data: bytes, start: int) -> int:
    end = data.find(b"\n", start)
    end = len(data) if end < 0 else end
    turn = data.find(b"\r", start, end)
    return turn if turn >= 0 else end
