"""JSON documents out of text that is nearly JSON.

In: text with documents in it. Out: each as Python values, with commas put in where they lack and taken out where they
are too many, and with what was open at the end closed.

NCCL 2.28.9 leaves out the comma between `nvml_dev` and `status` of a missing rank; RCCL puts a banner before the
document; a connection can end in the middle. All of it costs time linear in the text.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MAX_DEPTH = 64
_TOKEN = re.compile(
    r'"(?:[^"\\\x00-\x1f]|\\.)*"|[{}\[\]:,]|-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?|true|false|null'
)
_CLOSING = {"{": "}", "[": "]"}
_OPEN_BRACKETS, _CLOSING_BRACKETS = ("{", "["), ("}", "]")


@dataclass(frozen=True, slots=True)
class Mended:
    """`is_cut`: the text ended inside the document."""

    value: dict[str, Any]
    is_cut: bool


def documents(text: str) -> Iterator[Mended]:
    """All objects at the top of the text that can be read; what stands between them is skipped."""
    try:
        value = json.loads(text)  # ten times as fast
    except (ValueError, RecursionError):
        yield from _mended(text)
        return
    if isinstance(value, dict):
        yield Mended(value, is_cut=False)


def _mended(text: str) -> Iterator[Mended]:
    start = text.find("{")
    writer = _Writer()
    for part in _TOKEN.finditer(text, start) if start >= 0 else ():
        writer.add(part[0])
        if writer.is_whole:
            yield from _loaded(writer, is_cut=False)
            writer = _Writer()
    if writer.open:
        writer.close_all()
        yield from _loaded(writer, is_cut=True)


def _loaded(writer: "_Writer", *, is_cut: bool) -> Iterator[Mended]:
    try:
        value = json.loads("".join(writer.parts))
    except (ValueError, RecursionError):
        return
    yield Mended(value, is_cut)


@dataclass(slots=True)
class _Writer:
    """Writes tokens as JSON. `open` has, for each open bracket, what must come next in it.

    That is a "key", a "colon" or a "value" in an object, the "first" value of a list, or a "comma".
    """

    parts: list[str] = field(default_factory=list)
    open: list[list[str]] = field(default_factory=list)
    is_whole: bool = False
    too_deep: int = 0

    def add(self, part: str) -> None:
        """One token; one that has no place is left out."""
        if not self.open:
            if part == "{":
                self._push(part)
        elif part in _OPEN_BRACKETS:
            self._open(part)
        elif part in _CLOSING_BRACKETS:
            self._close(part)
        elif not self.too_deep:
            self._add_inside(part)

    def close_all(self) -> None:
        """Ends all that is open."""
        while self.open:
            self._pop()

    def _add_inside(self, part: str) -> None:
        bracket, need = self.open[-1]
        if part in (",", ":"):  # a comma is written when the next value begins
            if part == ":" and need == "colon":
                self._write(":", "value")
        elif bracket == "{" and need in ("key", "comma"):
            if part[0] == '"':
                self._separate()
                self._write(part, "colon")
        elif need != "colon":
            self._separate()
            self._write(part, "comma")

    def _open(self, part: str) -> None:
        bracket, need = self.open[-1]
        has_place = need == "value" or (bracket == "[" and need in ("first", "comma"))
        if self.too_deep or not has_place or len(self.open) >= MAX_DEPTH:
            self.too_deep += 1
            return
        self._separate()
        self.open[-1][1] = "comma"
        self._push(part)

    def _close(self, part: str) -> None:
        if self.too_deep:
            self.too_deep -= 1
        elif part == _CLOSING[self.open[-1][0]]:
            self._pop()
            self.is_whole = not self.open

    def _push(self, part: str) -> None:
        self.parts.append(part)
        self.open.append([part, "key" if part.startswith("{") else "first"])

    def _pop(self) -> None:
        bracket, need = self.open.pop()
        if need in ("colon", "value"):
            self.parts.append(":null" if need == "colon" else "null")
        self.parts.append(_CLOSING[bracket])

    def _separate(self) -> None:
        if self.open[-1][1] == "comma":
            self.parts.append(",")

    def _write(self, part: str, need: str) -> None:
        self.parts.append(part)
        self.open[-1][1] = need
