"""The members of a tar archive that nobody vouches for.

In: an open regular file, plain tar or gzip, possibly hostile or cut short. Out: its members in order, in small chunks.

The standard `tarfile` is not used for reading: it takes a damaged header for the end of the archive, so that a cut goes
unseen, and it loads headers of any claimed length into memory. Memory and time here are linear in what is really there.
Understood are the headers that today's tars write: ustar, GNU long names, and pax `path` and `size`.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ncclprobe.bundle.store import CHUNK_BYTES, Limits, too_large, too_many

BLOCK_BYTES = 512
GZIP_MAGIC = b"\x1f\x8b"
MAX_HEADER_BYTES = 1 << 16

_KINDS = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"1": "hard link",
    b"2": "symbolic link",
    b"3": "device",
    b"4": "device",
    b"5": "directory",
    b"6": "fifo",
}
_LONG_NAME, _PAX = b"L", b"x"
_HEADERS_OF_NEXT = (_LONG_NAME, _PAX, b"K", b"g")


class DamagedError(Exception):
    """The archive cannot be read further; the message completes "the archive ..."."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One entry, its name as written in the archive. `kind` is `file`, `directory`, `hard link`, ... or `unknown`."""

    name: str
    kind: str
    size_bytes: int
    modified_s: int


class TarStream:
    """Members of `file` in order; BundleError when there are more, or larger ones, than `limits` allow."""

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        start = file.read(len(GZIP_MAGIC))
        file.seek(0)
        self._bytes = _ByteStream(_unzipped(file) if start == GZIP_MAGIC else _plain(file), limits)
        self._limits = limits
        self._unread_bytes = 0
        self._padding_bytes = 0

    def members(self) -> Iterator[Member]:
        """Each member; what is left of its data is skipped before the next. DamagedError at the first fault."""
        headers = 0
        extra: dict[str, str] = {}
        while (block := self._next_header()) is not None:
            headers += 1
            if headers > self._limits.members:
                raise too_many(self._limits)
            kind = block[156:157]
            self._expect(_size_bytes(block, extra))
            if kind in _HEADERS_OF_NEXT:
                extra |= _header_of_next(kind, self._header_data())
            else:
                yield _member(block, extra, self._unread_bytes)
                extra = {}
        self._bytes.drain()

    def data(self) -> Iterator[bytes]:
        """What is left of the current member's bytes; DamagedError, after all that is there, when some are missing."""
        while self._unread_bytes:
            chunk = self._bytes.read(min(self._unread_bytes, CHUNK_BYTES))
            self._unread_bytes -= len(chunk)
            if chunk:
                yield chunk
            else:
                raise self._bytes.damage()

    def _next_header(self) -> bytes | None:
        for _ in self.data():
            pass
        self._bytes.read(self._padding_bytes)
        block = self._bytes.read(BLOCK_BYTES)
        if len(block) < BLOCK_BYTES:
            raise self._bytes.damage()
        if block == bytes(BLOCK_BYTES):
            return None
        # The sum counts its own eight bytes as spaces.
        if _number(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * ord(" "):
            raise DamagedError("is damaged: a header is not one of tar")
        return block

    def _expect(self, size_bytes: int) -> None:
        if size_bytes < 0:
            raise DamagedError("is damaged: a header claims a negative size")
        if size_bytes > self._limits.total_bytes:
            raise too_large(self._limits)
        self._unread_bytes = size_bytes
        self._padding_bytes = -size_bytes % BLOCK_BYTES

    def _header_data(self) -> bytes:
        if self._unread_bytes > MAX_HEADER_BYTES:
            raise DamagedError(f"is damaged: a header claims {self._unread_bytes} bytes")
        return b"".join(self.data())


class _ByteStream:
    """Exact reads over chunks of any size. A fault in the chunks ends the stream; `damage` then tells which it was."""

    def __init__(self, chunks: Iterator[bytes], limits: Limits) -> None:
        self._chunks = chunks
        self._limits = limits
        self._left_bytes = limits.total_bytes
        self._chunk = b""
        self._position = 0
        self._fault: DamagedError | None = None

    def read(self, count: int) -> bytes:
        """`count` bytes, fewer only at the end."""
        pieces = []
        while count and (self._position < len(self._chunk) or self._advance()):
            piece = self._chunk[self._position : self._position + count]
            self._position += len(piece)
            count -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def drain(self) -> None:
        """Read to the end, where gzip keeps its check sum; DamagedError when there is a fault."""
        while self._advance():
            pass
        if self._fault is not None:
            raise self._fault

    def damage(self) -> DamagedError:
        """Why the stream ended too early."""
        return self._fault or DamagedError("is truncated")

    def _advance(self) -> bool:
        self._position = 0
        try:
            self._chunk = next(self._chunks, b"")
        except DamagedError as fault:
            self._chunk, self._fault = b"", fault
        self._left_bytes -= len(self._chunk)
        if self._left_bytes < 0:
            raise too_large(self._limits)
        return bool(self._chunk)


def _plain(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _unzipped(file: BinaryIO) -> Iterator[bytes]:
    """Inflated chunks of bounded size, whatever the ratio; unlike `gzip`, all that comes before a fault is kept."""
    inflate = zlib.decompressobj(wbits=31)
    packed = file.read(CHUNK_BYTES)
    while packed or not inflate.eof:
        chunk = _inflated(inflate, packed)
        if chunk:
            yield chunk
        at_end = not packed
        packed = inflate.unconsumed_tail or inflate.unused_data or file.read(CHUNK_BYTES)
        if inflate.eof:
            packed = packed.lstrip(b"\0")
            inflate = zlib.decompressobj(wbits=31) if packed else inflate
        elif at_end and not chunk:
            raise DamagedError("is truncated")


def _inflated(inflate: "zlib._Decompress", packed: bytes) -> bytes:
    try:
        return inflate.decompress(packed, CHUNK_BYTES)
    except zlib.error as error:
        raise DamagedError("is damaged: its compressed data does not unpack") from error


def _member(block: bytes, extra: dict[str, str], size_bytes: int) -> Member:
    name = extra.get("path") or _name(block)
    kind = _KINDS.get(block[156:157], "unknown")
    if kind == "file" and name.endswith("/"):
        kind = "directory"
    return Member(name=name, kind=kind, size_bytes=size_bytes, modified_s=_number(block[136:148]))


def _size_bytes(block: bytes, extra: dict[str, str]) -> int:
    kind = block[156:157]
    if _KINDS.get(kind, "file") != "file":
        return 0
    size = extra.get("size", "") if kind not in _HEADERS_OF_NEXT else ""
    return int(size) if size.isascii() and size.isdigit() and len(size) < 20 else _number(block[124:136])


def _name(block: bytes) -> str:
    name, prefix = block[:100], block[345:500]
    # GNU's magic, "ustar  ", keeps other things where POSIX keeps the prefix.
    parts = (prefix, name) if block[257:263] == b"ustar\0" else (name,)
    return "/".join(filter(None, (_text(part) for part in parts)))


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _number(field: bytes) -> int:
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big", signed=field[0] == 0xFF)
    digits = field.split(b"\0", 1)[0].strip()
    if digits.strip(b"01234567"):
        raise DamagedError("is damaged: a header holds no number where one belongs")
    return int(digits or b"0", 8)


def _header_of_next(kind: bytes, data: bytes) -> dict[str, str]:
    if kind == _LONG_NAME:
        return {"path": _text(data)}
    return _pax_records(data) if kind == _PAX else {}


def _pax_records(data: bytes) -> dict[str, str]:
    """`path` and `size` of a pax header, whose records read `<length> <key>=<value>` and end in a newline."""
    records: dict[str, str] = {}
    start = 0
    while start < len(data):
        digits = data[start : start + 7].partition(b" ")[0]
        end = start + int(digits) if digits.isdigit() else 0
        if not start + len(digits) < end <= len(data):
            raise DamagedError("is damaged: a pax header does not parse")
        key, _, value = data[start + len(digits) + 1 : end].partition(b"=")
        if key in (b"path", b"size"):
            records[key.decode()] = value.rstrip(b"\n").decode("utf-8", "surrogateescape")
        start = end
    return records
