"""Pickles as torch's C++ pickler writes them: protocol 2, data only, each text once, and each frame.

In: values. Out: bytes. Codes and their order are those of real dumps (torch 2.13): a text is kept in the memo where it
first appears (BINPUT) and fetched after that (BINGET); of containers only frames are.
"""

import struct
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from ncclprobe.model.frames import Frame

_SCALARS: Mapping[object, bytes] = {None: b"N", True: b"\x88", False: b"\x89"}


def integer(value: int) -> bytes:
    """In as few bytes as torch uses."""
    if 0 <= value < 1 << 8:
        return b"K%c" % value
    if 0 <= value < 1 << 16:
        return b"M" + value.to_bytes(2, "little")
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + value.to_bytes(4, "little", signed=True)
    return b"\x8a\x08" + value.to_bytes(8, "little", signed=True)


class TorchPickle:
    """One dump in the making: its memo, and chunks of bytes that need no new place in it.

    Frames that appear `once` in all of it are not kept: torch keeps what something else refers to as well.
    """

    def __init__(self, once: Container[Frame] = ()) -> None:
        self._once = once
        self._memo: dict[object, int] = {}
        self._chunks: dict[object, tuple[bytes, ...]] = {}

    def whole(self, data: bytes) -> bytes:
        """A pickle of one value, given as bytes; torch keeps it in the memo to the last."""
        return b"\x80\x02" + data + self._put(self) + b"."

    def value(self, value: Any) -> bytes:
        """A scalar, text, tuple of two, list or dict, with whatever is in it."""
        if value is None or isinstance(value, bool):
            return _SCALARS[value]
        if isinstance(value, int):
            return integer(value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Frame):
            return self._frame(value)
        if isinstance(value, Mapping):
            return self.mapping(value.items())
        if isinstance(value, tuple):
            return b"".join(map(self.value, value)) + b"\x86"
        return self.sequence(map(self.value, value))

    def text(self, text: str) -> bytes:
        """In full for the first time, by its place in the memo after that."""
        known = self._memo.get(text)
        if known is not None:
            return _get(known)
        data = text.encode()
        return b"X" + struct.pack("<I", len(data)) + data + self._put(text)

    def mapping(self, items: Iterable[tuple[Any, Any]]) -> bytes:
        """A dict, marked even where it is empty."""
        return b"}(" + b"".join(self.value(key) + self.value(value) for key, value in items) + b"u"

    def sequence(self, items: Iterable[bytes]) -> bytes:
        """A list of values that are bytes already."""
        return b"](" + b"".join(items) + b"e"

    def chunks(self, key: object, build: Callable[[], Iterable[bytes]]) -> tuple[bytes, ...]:
        """What `build` gives; kept for the next time once it puts nothing new into the memo."""
        known = self._chunks.get(key)
        if known is None:
            before = len(self._memo)
            known = tuple(build())
            if len(self._memo) == before:
                self._chunks[key] = known
        return known

    def _frame(self, frame: Frame) -> bytes:
        known = self._memo.get(frame)
        if known is not None:
            return _get(known)
        data = self.mapping((("name", frame.function), ("filename", frame.file), ("line", frame.line or 0)))
        return data if frame in self._once else data + self._put(frame)

    def _put(self, value: object) -> bytes:
        place = self._memo[value] = len(self._memo)
        return b"q%c" % place if place < 1 << 8 else b"r" + struct.pack("<I", place)


def _get(place: int) -> bytes:
    return b"h%c" % place if place < 1 << 8 else b"j" + struct.pack("<I", place)
