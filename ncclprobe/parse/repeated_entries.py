"""Entries of a dump that differ from an earlier one by their numbers alone; in training that is nearly all of them.

In: the bytes of a pickle. Out: `Folded`: a shorter pickle that leaves such entries out, and the numbers of each; None
where too few are found, as in a dump that torch did not write.

torch's pickler writes each text and each shared frame once, and refers to its place in the memo ever after. So the
entries of one call site are equal byte for byte, but for counters and times, and none of them adds to the memo: what
follows does not miss it. An entry is left out only if all of its bytes are what they should be; the shorter pickle is
one that anybody may have written, like the whole.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ncclprobe.parse.data_pickle import ONCE

# What is read of an entry that is left out: a key of each of these.
_READ = (
    ("record_id",),
    ("seq_id", "collective_seq_id"),
    ("seq_id", "p2p_seq_id"),
    ("time_created_ns", "time_created_us"),
)
_UNUSED = ("op_id", "time_discovered_started_ns", "time_discovered_completed_ns", "duration_ms")
_REFERENCE, _NUMBER = rb"(?:h.|j....)", rb"(?:K.|M..|J....|\x8a\x08........)"
_PAIR = _REFERENCE + rb"{2}\x86"
_REFERENCES = rb"\]\(" + _REFERENCE + b"*" + ONCE + b"e"
_SIZES = rb"\]\((?:\]\(" + _NUMBER + b"*" + ONCE + b"e)*" + ONCE + b"e"
_VALUES = {
    "frames": _REFERENCES, "pg_id": _NUMBER, "process_group": _PAIR, "thread_name": _REFERENCE, "thread_id": _REFERENCE,
    "profiling_name": _REFERENCE, "input_sizes": _SIZES, "input_dtypes": _REFERENCES, "output_sizes": _SIZES,
    "output_dtypes": _REFERENCES, "state": _REFERENCE, "retired": rb"[\x88\x89]", "timeout_ms": _NUMBER,
    "is_p2p": rb"[\x88\x89]",
    **dict.fromkeys((key for keys in _READ for key in keys), _NUMBER),
    **dict.fromkeys(_UNUSED, rb"(?:N|G........|" + _NUMBER + rb")"),
}  # fmt: skip
_FIRST = re.compile(rb"\}\(X(?:\x06\0\0\0frames|\x09\0\0\0record_id|\x05\0\0\0pg_id)q(.)", re.DOTALL)
_MOST_LEFT = 0.5  # of all entries: with more it is not worth it
_MOST_BYTES = 1 << 14  # of one entry: the regular expression takes memory for each item of a list

Codes = tuple[bytes, ...]
"""Four: of `record_id`, of the number as a collective and as a send or recv, and of the time (in `created_unit_ns`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """`data` is a pickle of the same dump with `count` entries. `rows` are the entries of the whole dump.

    A row is the place of an entry that is left, and None for that entry itself; else the codes of the numbers that it
    holds in their stead.
    """

    data: bytes
    count: int
    created_unit_ns: int
    rows: list[tuple[int, Codes | None]]


def fold(data: bytes) -> Folded | None:
    """One pass over the bytes."""
    first = _FIRST.search(data)
    separator = b"u}(h" + first[1] if first else b""
    end = data.find(separator, first.end()) if first else -1
    if first is None or end < 0:
        return None
    layout = _layout(list(_keys(data, first.start(), end)))
    if layout is None:
        return None
    head, *chunks = data.split(separator)
    left, rows = [head], list[tuple[int, Codes | None]]([(0, None)])
    known: dict[tuple[bytes, ...], int] = {}
    for chunk in chunks:
        found = layout.match(chunk) if len(chunk) <= _MOST_BYTES else None
        index = known.setdefault(found.group(*layout.shared), len(left)) if found else len(left)
        if index == len(left):
            left.append(chunk)
        rows.append((index, found.group(*layout.read) if found else None))
    if len(left) > _MOST_LEFT * len(rows):
        return None
    return Folded(data=separator.join(left), count=len(left), created_unit_ns=layout.created_unit_ns, rows=rows)


def number(code: bytes) -> int:
    """What BININT1, BININT2, BININT, or LONG1 of 8 bytes stands for: the first two are unsigned."""
    return int.from_bytes(code, "little", signed=len(code) > 3) >> (16 if len(code) == 10 else 8)


def _keys(data: bytes, start: int, end: int) -> Iterator[tuple[str, bytes]]:
    """Every key and the reference to it, in the order of the first entry, where each is spelled out."""
    places = []
    for name in _VALUES:
        text = b"X" + len(name).to_bytes(4, "little") + name.encode() + b"q"
        at = data.find(text, start, end)
        if at >= 0:
            places.append((at, name, b"h" + data[at + len(text) : at + len(text) + 1]))
    return ((name, reference) for _, name, reference in sorted(places))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """How an entry's bytes look, from behind its first key to before its end.

    `read` are the groups of the match that hold its `Codes`, `shared` what equal entries have in common.
    """

    match: Callable[[bytes], "re.Match[bytes] | None"]
    read: tuple[int, ...]
    shared: tuple[int, ...]
    created_unit_ns: int


def _layout(keys: list[tuple[str, bytes]]) -> _Layout | None:
    """None where something that must be read is not there."""
    parts, group_of, shared, groups = [b"("], {}, [1], 1
    for place, (name, reference) in enumerate(keys):
        parts.append(re.escape(reference) if place else b"")
        if not any(name in names for names in (*_READ, _UNUSED)):
            parts.append(_VALUES[name])
            continue
        if name not in _UNUSED:
            groups += 1
            group_of[name] = groups
        groups += 1
        shared.append(groups)
        parts.append(b")" + (_VALUES[name] if name in _UNUSED else b"(" + _VALUES[name] + b")") + b"(")
    read = [next((group_of[name] for name in names if name in group_of), None) for names in _READ]
    if None in read:
        return None
    return _Layout(
        match=re.compile(b"".join(parts) + b")", re.DOTALL).fullmatch,
        read=tuple(group for group in read if group is not None),
        shared=tuple(shared),
        created_unit_ns=1 if "time_created_ns" in group_of else 1000,
    )
