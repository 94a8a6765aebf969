"""Pickles that can only be data.

In: bytes that anybody may have written. Out: containers and scalars; ParseError for everything else, before any of it
is loaded.

The codes of a pickle are checked first, because loading one can call any function, and because 7 bytes (LONG_BINPUT
with a large number) make CPython's unpickler fill gigabytes. What passes may still nest without end: hash and compare
nothing of it before its type is known. Codes as in CPython's `pickletools`.
"""

import io
import pickle
import re
import sys
from typing import Any, NoReturn

from ncclprobe.model.errors import ParseError
from ncclprobe.parse.text import clean

MAX_BYTES = 64 << 20

# Integers of up to 9 bytes; a longer one is no count, size or time.
_LONG1 = b"|".join(b"\x8a" + re.escape(bytes([size])) + b".{%d}" % size for size in range(9, -1, -1))
ONCE = b"+" if sys.version_info >= (3, 11, 5) else b""
"""After a repeat that is never gone back on, where Python can do that (before 3.11.5 it is flawed): that saves time."""
_BARE = rb"[\](})N\x88\x89\x85-\x87taseu\x94]*" + ONCE
# A run of codes of fixed length. LONG_BINPUT (r) is held under 2^22 objects: 64 MiB of memo. Repeats are few enough
# for the memory that Python's regular expressions take per repeat.
_RUN = re.compile(
    rb"(?:" + _BARE + rb"(?:[Khq].|M..|[Jj].{4}|r..[\x00-\x3f]\x00|G.{8}|" + _LONG1 + rb")){0,4000}" + ONCE + _BARE,
    re.DOTALL,
)
_SIZES = {b"K": 2, b"h": 2, b"q": 2, b"M": 3, b"J": 5, b"j": 5, b"r": 5, b"G": 9}
_PROTOCOLS = (2, 3, 4, 5)


def load(data: bytes) -> Any:
    """The pickled value; ParseError when it is cut off, too large, or holds anything but data."""
    if len(data) > MAX_BYTES:
        raise ParseError(f"refused: a dump of {len(data) >> 20} MiB is larger than any flight recorder writes")
    _check_codes(data)
    try:
        # A buffered reader lets the unpickler look ahead: four times faster than bare BytesIO.
        return _DataUnpickler(io.BufferedReader(io.BytesIO(data), len(data))).load()
    except ParseError:
        raise
    except MemoryError:
        raise ParseError("refused: reading it needs more memory than any dump should") from None
    except Exception as error:  # noqa: BLE001 - codes in the wrong order can raise nearly anything
        raise ParseError(f"damaged: {type(error).__name__}: {clean(str(error), 120)}") from None


class _DataUnpickler(pickle.Unpickler):
    """A second lock behind the check of codes."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise ParseError("refused: the pickle asks for a class")

    def persistent_load(self, pid: object) -> NoReturn:
        raise ParseError("refused: the pickle refers to something outside itself")


def _check_codes(data: bytes) -> None:
    """From code to code up to STOP, over strings by their lengths."""
    if len(data) < 2 or data[0] != 0x80 or data[1] not in _PROTOCOLS:
        raise ParseError("not a pickle of protocol 2 or later")
    position = 2
    while True:
        found = _RUN.match(data, position)
        end = found.end() if found else position
        code = data[end : end + 1]
        if code == b".":
            return
        if code == b"X":  # BINUNICODE
            position = end + 5 + int.from_bytes(data[end + 1 : end + 5], "little")
        elif code == b"\x8c":  # SHORT_BINUNICODE
            position = end + 2 + int.from_bytes(data[end + 1 : end + 2], "little")
        elif code == b"\x95":  # FRAME: its length is only a hint to read ahead
            position = end + 9
        elif end == position:
            raise _refusal(data, end)
        else:
            position = end


def _refusal(data: bytes, position: int) -> ParseError:
    code, left = data[position : position + 1], len(data) - position
    size = 2 + int.from_bytes(data[position + 1 : position + 2], "little") if code == b"\x8a" else _SIZES.get(code, 1)
    if left < size:
        return ParseError("cut off: its end is missing")
    return ParseError(f"refused: code {code!r} at byte {position} of the pickle, which no flight recorder writes")
