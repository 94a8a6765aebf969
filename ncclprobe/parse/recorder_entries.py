"""The entries of a flight-recorder dump, as columns.

In: the entries as loaded from pickle or JSON, and the process groups that `pg_config` lists. Out: distinct groups,
signatures and stacks, and one row of numbers per entry.

A job repeats itself: thousands of entries are of a few kinds, and differ in number, time and frames only. Each kind is
read and checked once, and known again by the bytes that `marshal` makes of it, which differ where any value or type
does, however it is nested.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from marshal import dumps
from operator import itemgetter
from typing import Any

from ncclprobe.model.collectives import ProcessGroup, Signature, Sizes
from ncclprobe.model.frames import Frame, Stack
from ncclprobe.parse.repeated_entries import Codes, Folded, number
from ncclprobe.parse.text import clean

DAMAGE = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError)

# What entries of one kind share; keys that a version does not write are None.
_OF_KIND = (
    "profiling_name", "process_group", "pg_id", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes", "state",
    "retired", "timeout_ms", "is_p2p",
)  # fmt: skip
_kind_values = itemgetter(*_OF_KIND)
# These record the end of a call in `state`. For them "retired but not completed" means timed out. All others (gloo, and
# what reports through FlightRecorderHook since torch 2.15) leave "scheduled" there and only set `retired`.
_SETS_STATE = ("nccl", "xccl", "")
_SEQ_KEYS = ("collective_seq_id", "p2p_seq_id")
_LIMIT = 2**62
_MAX_GROUPS = 0xFFFF
_INTEGERS, _TEXTS = frozenset({int}), frozenset({str})
_counter = lru_cache(maxsize=1 << 14)(number)  # ranks count alike


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """`pg_id` is None where the entries have none that could be one."""

    backend: str
    pg_id: str | None
    group: int
    signature: int
    timeout_ms: int
    is_completed: bool
    is_p2p: bool


_Alike = tuple[int, int, int]
"""Kind, stack, and the place of the number among the codes, of entries that differ in nothing else."""


class Entries:
    """What has been read so far. `unused` are the groups of `pg_config` that no entry has named yet."""

    def __init__(self, configured: dict[str, tuple[str, tuple[int, ...]]]) -> None:
        self.configured = configured
        self.unused = dict(configured)
        self.groups: dict[tuple[str, str], ProcessGroup] = {}
        self.signatures: dict[Signature, int] = {}
        self.stacks: dict[Stack, int] = {}
        self.kind_of = array("I")
        self.stack_of = array("I")
        self.seq = array("q")
        self.created_ns = array("q")
        self.damaged = 0
        self.repeated = 0
        self._record_ids: set[int] = set()
        self._kinds: list[_Kind] = []
        self._kind_numbers: dict[bytes, int] = {}
        self._group_numbers: dict[tuple[str, str], int] = {}
        self._stack_numbers: dict[tuple[int, ...], int] = {}
        self._frames: dict[int, Frame] = {}

    def add_all(self, listed: list[Any]) -> None:
        """A row for each entry; those that are no such thing, or come a second time, are counted."""
        for entry in listed:
            try:
                self._add(entry)
            except DAMAGE:
                self.damaged += 1

    def add_folded(self, listed: list[Any], folded: Folded) -> None:
        """The same for a dump of which `listed` is what was not left out."""
        alike: dict[int, _Alike | None] = {}
        for index, codes in folded.rows:
            if codes is None:
                self.add_all(listed[index : index + 1])
                continue
            if index not in alike:
                alike[index] = self._what_is_alike(listed[index])
            self._add_alike(alike[index], codes, folded.created_unit_ns)

    def column(self, of_kind: Callable[[_Kind], int]) -> list[int]:
        """What all entries of a kind share, for each row."""
        values = list(map(of_kind, self._kinds))
        return list(map(values.__getitem__, self.kind_of))

    @property
    def backends(self) -> tuple[str, ...]:
        """In order of their first call."""
        return tuple(dict.fromkeys(kind.backend for kind in self._used_kinds()))

    @property
    def group_of_id(self) -> dict[str, int]:
        """The group of the first call under each `pg_id`."""
        found: dict[str, int] = {}
        for kind in self._used_kinds():
            if kind.pg_id is not None:
                found.setdefault(kind.pg_id, kind.group)
        return found

    def add_unused_groups(self) -> None:
        """The groups that no entry names, except one without name or ranks: gloo writes such a one for all of its."""
        for name, (description, ranks) in self.unused.items():
            if (name or ranks) and len(self.groups) <= _MAX_GROUPS:
                self.groups[name, description] = ProcessGroup(name=name, description=description, ranks=ranks)

    def _used_kinds(self) -> list[_Kind]:
        return [self._kinds[number] for number in dict.fromkeys(self.kind_of)]

    def _add(self, entry: dict[str, Any]) -> None:
        """Appends one row, or raises one of DAMAGE and changes no column."""
        record_id = entry.get("record_id")
        if type(record_id) is int and record_id in self._record_ids:
            self.repeated += 1
            return
        kind, stack = self._kind(entry), self._stack(entry.get("frames"))
        seq = entry["seq_id" if "seq_id" in entry else _SEQ_KEYS[self._kinds[kind].is_p2p]]
        created_ns = entry.get("time_created_ns") or 1000 * _whole(entry.get("time_created_us", 0))
        self._append(kind, stack, _whole(seq), _whole(created_ns))
        if type(record_id) is int:
            self._record_ids.add(record_id)

    def _what_is_alike(self, entry: dict[str, Any]) -> _Alike | None:
        """None where it cannot be told."""
        try:
            kind = self._kind(entry)
            return kind, self._stack(entry.get("frames")), 1 + self._kinds[kind].is_p2p
        except DAMAGE:
            return None

    def _add_alike(self, alike: _Alike | None, codes: Codes, created_unit_ns: int) -> None:
        record_id = _counter(codes[0])
        if record_id in self._record_ids:
            self.repeated += 1
            return
        seq, created_ns = _counter(codes[alike[2] if alike else 1]), number(codes[3]) * created_unit_ns
        if alike is None or not (-_LIMIT < seq < _LIMIT and -_LIMIT < created_ns < _LIMIT):
            self.damaged += 1
            return
        self._append(alike[0], alike[1], seq, created_ns)
        self._record_ids.add(record_id)

    def _append(self, kind: int, stack: int, seq: int, created_ns: int) -> None:
        self.kind_of.append(kind)
        self.stack_of.append(stack)
        self.seq.append(seq)
        self.created_ns.append(created_ns)

    def _kind(self, entry: dict[str, Any]) -> int:
        try:
            values = _kind_values(entry)
        except KeyError:
            values = tuple(map(entry.get, _OF_KIND))
        key = dumps(values)
        known = self._kind_numbers.get(key)
        if known is None:
            known = self._kind_numbers[key] = self._new_kind(entry)
        return known

    def _new_kind(self, entry: dict[str, Any]) -> int:
        backend, op = _name(entry["profiling_name"])
        pg_id, is_p2p = entry.get("pg_id"), _is_p2p(entry, op)
        self._kinds.append(
            _Kind(
                backend=backend,
                pg_id=str(pg_id) if type(pg_id) in (int, str) else None,
                group=self._group(entry),
                signature=self._signature(op, entry),
                timeout_ms=max(-1, _whole(entry.get("timeout_ms", -1))),
                is_completed=_is_completed(backend, entry),
                is_p2p=is_p2p,
            )
        )
        return len(self._kinds) - 1

    def _group(self, entry: dict[str, Any]) -> int:
        """Torch 2.2 and 2.3 name a group only by its number."""
        name, description = entry.get("process_group") or (str(_whole(entry["pg_id"])), "")
        _must_be_text(name)
        _must_be_text(description)
        known = self._group_numbers.get((name, description))
        if known is None:
            shown = clean(name), clean(description)
            known = self._group_numbers[shown] if shown in self.groups else self._new_group(*shown)
            self._group_numbers[name, description] = self._group_numbers[shown] = known
        return known

    def _new_group(self, name: str, description: str) -> int:
        # gloo records its default group as '' in pg_config and as ('0', 'default_pg') in entries (seen in torch 2.13).
        listed = "" if name not in self.configured and description == "default_pg" else name
        listed_description, ranks = self.configured.get(listed, ("", ()))
        index = len(self.groups)
        if index > _MAX_GROUPS:
            raise ValueError("too many process groups")
        self.unused.pop(listed, None)
        group = ProcessGroup(name=name, description=description or listed_description, ranks=ranks)
        self.groups[name, description] = group
        return index

    def _signature(self, op: str, entry: dict[str, Any]) -> int:
        signature = Signature(
            op,
            _sizes(entry.get("input_sizes")),
            _sizes(entry.get("output_sizes")),
            _dtypes(entry.get("input_dtypes")),
            _dtypes(entry.get("output_dtypes")),
        )
        return self.signatures.setdefault(signature, len(self.signatures))

    def _stack(self, frames: list[dict[str, Any]] | None) -> int:
        """Torch's pickle holds each distinct frame once, so identity is a cheap first key while the dump is alive."""
        if frames is None:
            frames = []
        if type(frames) is not list:
            raise TypeError("frames are no list")
        key = tuple(map(id, frames))
        known = self._stack_numbers.get(key)
        if known is None:
            stack = tuple(map(self._known_frame, frames))
            known = self._stack_numbers[key] = self.stacks.setdefault(stack, len(self.stacks))
        return known

    def _known_frame(self, frame: dict[str, Any]) -> Frame:
        known = self._frames.get(id(frame))
        if known is None:
            known = self._frames[id(frame)] = _frame(frame)
        return known


def _name(name: Any) -> tuple[str, str]:
    """`nccl:send 0->1` -> backend and op; a name without a colon has no backend."""
    _must_be_text(name)
    head, colon, op = clean(name).partition(":")
    return (head, op) if colon else ("", head)


def _frame(frame: dict[str, Any]) -> Frame:
    function, file, line = frame["name"], frame["filename"], _whole(frame.get("line") or 0)
    _must_be_text(function)
    _must_be_text(file)
    return Frame(clean(function), clean(file), line if line > 0 else None)


def _is_p2p(entry: dict[str, Any], op: str) -> bool:
    """Torch 2.2 and 2.3 have no such key."""
    return entry["is_p2p"] is True if "is_p2p" in entry else op.startswith(("send ", "recv "))


def _is_completed(backend: str, entry: dict[str, Any]) -> bool:
    return entry.get("state") == "completed" or (backend not in _SETS_STATE and entry.get("retired") is True)


def _sizes(value: Any) -> Sizes:
    # Types are checked before anything is hashed: shared nested tuples take exponential time to hash.
    sizes = tuple(map(tuple, value or ()))
    if not _INTEGERS.issuperset(map(type, chain.from_iterable(sizes))):
        raise TypeError("a size is no integer")
    return sizes


def _dtypes(value: Any) -> tuple[str, ...]:
    dtypes = tuple(value or ())
    if not _TEXTS.issuperset(map(type, dtypes)):
        raise TypeError("a dtype is no text")
    return tuple(map(clean, dtypes))


def _whole(value: Any) -> int:
    if type(value) is not int or not -_LIMIT < value < _LIMIT:
        raise TypeError("not an integer in range")
    return value


def _must_be_text(value: Any) -> None:
    if type(value) is not str:
        raise TypeError("not text")
