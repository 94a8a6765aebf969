"""Collective calls and who made them.

In: nothing. Out: `ProcessGroup`, `Signature` (what must agree between ranks), `CollectiveCall`, and `Recording`: one
rank's flight-recorder dump in columns, because a job has millions of calls and few distinct ones.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from ncclprobe.model.frames import Stack

Sizes = tuple[tuple[int, ...], ...]

_KEPT = 1 << 16  # values that come from many processes, each kept once


class _Ranks(tuple[int, ...]):
    """Hashed once: groups of thousands of ranks are keys of much, and are looked up for each of those."""

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("hash")
        if known is None:
            known = self.__dict__["hash"] = super().__hash__()
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """A torch process group. `ranks` are global and sorted; empty means the dump does not say."""

    name: str
    description: str = ""
    ranks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranks", _Ranks(self.ranks))

    def __reduce__(self) -> "tuple[object, ...]":
        """By way of one call: dataclasses with slots take ten times as long between processes."""
        return _group, (self.name, self.description, tuple(self.ranks))

    @property
    def label(self) -> str:
        """How a person tells it from the others: the description when it has one, else the name."""
        return self.description if self.description not in ("", "undefined") else self.name


@lru_cache(maxsize=_KEPT)
def _group(name: str, description: str, ranks: tuple[int, ...]) -> ProcessGroup:
    return ProcessGroup(name=name, description=description, ranks=ranks)


@dataclass(frozen=True, slots=True)
class Signature:
    """What the members of a group must agree on for one call. `op` has no backend prefix: `all_reduce`, `send 0->1`."""

    op: str
    input_sizes: Sizes
    output_sizes: Sizes
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]

    def __reduce__(self) -> "tuple[object, ...]":
        """As for groups."""
        sides = self.input_sizes, self.output_sizes, self.input_dtypes, self.output_dtypes
        return _signature, (self.op, *sides)

    def __str__(self) -> str:
        sizes = "x".join(map(str, self.input_sizes[0])) if self.input_sizes else ""
        dtype = self.input_dtypes[0] if self.input_dtypes else ""
        return f"{self.op}({f'{dtype}[{sizes}]' if dtype else sizes})"


@lru_cache(maxsize=_KEPT)
def _signature(
    op: str, inputs: Sizes, outputs: Sizes, input_dtypes: tuple[str, ...], output_dtypes: tuple[str, ...]
) -> Signature:
    return Signature(op, inputs, outputs, input_dtypes, output_dtypes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """The recorder's own counters for one group; they survive a wrapped ring. None is "none yet" (-1 in the dump)."""

    last_enqueued: int | None
    last_started: int | None
    last_completed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCall:
    """One rank's call. `created_ns` is the enqueue time on the host's wall clock; `entry` its place in the dump."""

    entry: int
    group: ProcessGroup
    seq: int
    signature: Signature
    is_completed: bool
    is_p2p: bool
    created_ns: int
    timeout_ms: int | None
    stack: Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One rank's flight recorder: distinct values once, and a row of columns per entry, oldest first.

    `statuses` is keyed by the rank's own `pg_id`, which `group_of_id` maps to an index of `groups` where entries tell.
    `group_of`, `signature_of`, `stack_of` index `groups`, `signatures` and `stacks`. `seq` is `collective_seq_id`
    (`p2p_seq_id` where `is_p2p`). `is_completed` is state "completed", or `retired` where the backend is gloo.
    `created_ns` is 0 and `timeout_ms` -1 where the dump says none. Not `is_whole`: entries were damaged or never
    written, so a call that is not here may still have been made.
    """

    version: str
    library_version: str | None
    is_whole: bool = True
    groups: tuple[ProcessGroup, ...] = ()
    group_of_id: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, GroupStatus] = field(default_factory=dict)
    signatures: tuple[Signature, ...] = ()
    stacks: tuple[Stack, ...] = ()
    backends: tuple[str, ...] = ()
    group_of: "array[int]" = field(default_factory=lambda: array("H"))
    signature_of: "array[int]" = field(default_factory=lambda: array("I"))
    stack_of: "array[int]" = field(default_factory=lambda: array("I"))
    seq: "array[int]" = field(default_factory=lambda: array("q"))
    created_ns: "array[int]" = field(default_factory=lambda: array("q"))
    timeout_ms: "array[int]" = field(default_factory=lambda: array("q"))
    is_completed: bytearray = field(default_factory=bytearray)
    is_p2p: bytearray = field(default_factory=bytearray)

    def __len__(self) -> int:
        return len(self.seq)

    def call(self, entry: int) -> CollectiveCall:
        """The call in row `entry`, counted from 0."""
        timeout_ms = self.timeout_ms[entry]
        return CollectiveCall(
            entry=entry,
            group=self.groups[self.group_of[entry]],
            seq=self.seq[entry],
            signature=self.signatures[self.signature_of[entry]],
            is_completed=bool(self.is_completed[entry]),
            is_p2p=bool(self.is_p2p[entry]),
            created_ns=self.created_ns[entry],
            timeout_ms=timeout_ms if timeout_ms >= 0 else None,
            stack=self.stacks[self.stack_of[entry]],
        )

    def calls(self) -> Iterator[CollectiveCall]:
        """All calls, oldest first."""
        return map(self.call, range(len(self)))
