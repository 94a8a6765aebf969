"""The entries of a flight-recorder dump, as columns.

In: one entry after another, as loaded from pickle or JSON, and the process groups that `pg_config` lists. Out: distinct
groups, signatures and stacks, and one row of numbers per entry. An entry that is no such thing raises one of `DAMAGE`.
"""

from array import array
from itertools import chain
from typing import Any

from ncclprobe.model.collectives import ProcessGroup, Signature, Sizes
from ncclprobe.model.frames import Frame, Stack
from ncclprobe.parse.text import clean

DAMAGE = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError)

# These record the end of a call in `state`. For them "retired but not completed" means timed out. All others (gloo, and
# what reports through FlightRecorderHook since torch 2.15) leave "scheduled" there and only set `retired`.
_SETS_STATE = ("nccl", "xccl", "")
_LIMIT = 2**62
_MAX_GROUPS = 0xFFFF
_INTEGERS, _TEXTS = frozenset({int}), frozenset({str})


class Entries:
    """What has been read so far. `unused` are the groups of `pg_config` that no entry has named yet."""

    def __init__(self, configured: dict[str, tuple[str, tuple[int, ...]]]) -> None:
        self.configured = configured
        self.unused = dict(configured)
        self.groups: dict[tuple[str, str], ProcessGroup] = {}
        self.group_of_id: dict[str, int] = {}
        self.signatures: dict[Signature, int] = {}
        self.stacks: dict[Stack, int] = {}
        self.backends: dict[str, None] = {}
        self.group_of = array("H")
        self.signature_of = array("I")
        self.stack_of = array("I")
        self.seq = array("q")
        self.created_ns = array("q")
        self.timeout_ms = array("q")
        self.is_completed = bytearray()
        self.is_p2p = bytearray()
        self._names: dict[str, tuple[str, str]] = {}
        self._group_numbers: dict[tuple[str, str], int] = {}
        self._signature_numbers: dict[tuple[object, ...], int] = {}
        self._stack_numbers: dict[tuple[int, ...], int] = {}
        self._frames: dict[int, Frame] = {}

    def add(self, entry: dict[str, Any]) -> None:
        """Appends one row, or raises one of DAMAGE and changes no column."""
        backend, op = self._name(entry["profiling_name"])
        is_p2p = _is_p2p(entry, op)
        group = self._group(entry)
        signature = self._signature(op, entry)
        stack = self._stack(entry.get("frames"))
        seq, created_ns, timeout_ms = _whole(_seq(entry, is_p2p=is_p2p)), _whole(_created_ns(entry)), _timeout_ms(entry)
        self.group_of.append(group)
        self.signature_of.append(signature)
        self.stack_of.append(stack)
        self.seq.append(seq)
        self.created_ns.append(created_ns)
        self.timeout_ms.append(timeout_ms)
        self.is_completed.append(_is_completed(backend, entry))
        self.is_p2p.append(is_p2p)
        self.backends[backend] = None
        if "pg_id" in entry:
            self.group_of_id.setdefault(str(entry["pg_id"]), group)

    def add_unused_groups(self) -> None:
        """The groups that no entry names, except one without name or ranks: gloo writes such a one for all of its."""
        for name, (description, ranks) in self.unused.items():
            if (name or ranks) and len(self.groups) <= _MAX_GROUPS:
                self.groups[name, description] = ProcessGroup(name=name, description=description, ranks=ranks)

    def _name(self, name: Any) -> tuple[str, str]:
        """`nccl:send 0->1` -> backend and op; a name without a colon has no backend."""
        _must_be_text(name)
        known = self._names.get(name)
        if known is None:
            head, colon, op = clean(name).partition(":")
            known = self._names[name] = (head, op) if colon else ("", head)
        return known

    def _group(self, entry: dict[str, Any]) -> int:
        """Torch 2.2 and 2.3 name a group only by its number."""
        name, description = entry.get("process_group") or (str(_whole(entry["pg_id"])), "")
        _must_be_text(name)
        _must_be_text(description)
        known = self._group_numbers.get((name, description))
        if known is None:
            known = self._group_numbers[name, description] = self._new_group(clean(name), clean(description))
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
        key = (
            op,
            _sizes(entry.get("input_sizes")),
            _sizes(entry.get("output_sizes")),
            _dtypes(entry.get("input_dtypes")),
            _dtypes(entry.get("output_dtypes")),
        )
        known = self._signature_numbers.get(key)
        if known is None:
            op, inputs, outputs, input_dtypes, output_dtypes = key
            signature = Signature(
                op, inputs, outputs, tuple(map(clean, input_dtypes)), tuple(map(clean, output_dtypes))
            )
            known = self._signature_numbers[key] = self.signatures.setdefault(signature, len(self.signatures))
        return known

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


def _frame(frame: dict[str, Any]) -> Frame:
    function, file, line = frame["name"], frame["filename"], _whole(frame.get("line") or 0)
    _must_be_text(function)
    _must_be_text(file)
    return Frame(clean(function), clean(file), line if line > 0 else None)


def _is_p2p(entry: dict[str, Any], op: str) -> bool:
    """Torch 2.2 and 2.3 have no such key."""
    return entry["is_p2p"] is True if "is_p2p" in entry else op.startswith(("send ", "recv "))


def _seq(entry: dict[str, Any], *, is_p2p: bool) -> Any:
    if "seq_id" in entry:
        return entry["seq_id"]
    return entry["p2p_seq_id" if is_p2p else "collective_seq_id"]


def _created_ns(entry: dict[str, Any]) -> Any:
    return entry.get("time_created_ns") or entry.get("time_created_us", 0) * 1000


def _timeout_ms(entry: dict[str, Any]) -> int:
    return max(-1, _whole(entry.get("timeout_ms", -1)))


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
    return dtypes


def _whole(value: Any) -> int:
    if type(value) is not int or not -_LIMIT < value < _LIMIT:
        raise TypeError("not an integer in range")
    return value


def _must_be_text(value: Any) -> None:
    if type(value) is not str:
        raise TypeError("not text")
