"""Pickles as torch's C++ pickler writes them (protocol 2): each text and each frame of several calls once.

In: the document of a dump. Out: its bytes. Python's own pickler gives the same values in other codes.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any


def torch_pickle(document: Any) -> bytes:
    """The document; frames are the dicts with a `filename`, shared where they are the same object."""
    writer = _Writer(Counter(map(id, _frames(document))))
    writer.push(document)
    writer.put("document")
    return b"\x80\x02" + bytes(writer.out) + b"."


def _frames(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and "filename" in value:
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _frames(part)


class _Writer:
    def __init__(self, uses: Counter[int]) -> None:
        self.out = bytearray()
        self.uses = uses
        self.memo: dict[object, int] = {}

    def push(self, value: Any) -> None:
        if isinstance(value, str):
            self._push_once(("text", value), lambda: self._text(value))
        elif isinstance(value, dict) and self.uses[id(value)] > 1:
            self._push_once(id(value), lambda: self._dict(value))
        elif isinstance(value, dict):
            self._dict(value)
        elif isinstance(value, list):
            self._list(value)
        elif isinstance(value, tuple):
            for part in value:
                self.push(part)
            self.out += b"\x86"
        else:
            self.out += _scalar(value)

    def _push_once(self, key: object, push: Any) -> None:
        known = self.memo.get(key)
        if known is not None:
            self.out += b"h" + bytes([known]) if known < 256 else b"j" + struct.pack("<I", known)
            return
        push()
        self.put(key)

    def put(self, key: object) -> None:
        index = self.memo[key] = len(self.memo)
        self.out += b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index)

    def _text(self, value: str) -> None:
        data = value.encode()
        self.out += b"X" + struct.pack("<I", len(data)) + data

    def _dict(self, value: dict[Any, Any]) -> None:
        self.out += b"}("
        for key, part in value.items():
            self.push(key)
            self.push(part)
        self.out += b"u"

    def _list(self, value: list[Any]) -> None:
        self.out += b"]("
        for part in value:
            self.push(part)
        self.out += b"e"


def _scalar(value: Any) -> bytes:
    if value is None or isinstance(value, bool):
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    for code, form, size in ((b"K", "<B", 1), (b"M", "<H", 2), (b"J", "<i", 4)):
        low, high = (-(1 << 31), 1 << 31) if size == 4 else (0, 1 << 8 * size)
        if low <= value < high:
            return code + struct.pack(form, value)
    return b"\x8a\x08" + struct.pack("<q", value)
