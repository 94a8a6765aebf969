"""The first call on which the members of a group disagree, and what kind of disagreement it is.

In: a `GroupTimeline`. Out: a `Mismatch`, or None where all calls that can be compared agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ncclprobe.analyze.agreement import tokens_of
from ncclprobe.analyze.conflict import Conflict
from ncclprobe.analyze.explain import Divergence, explain
from ncclprobe.analyze.root_claims import find_root_conflict
from ncclprobe.analyze.sides import Side, side_of, sides_at
from ncclprobe.analyze.splits import find_split_conflict
from ncclprobe.analyze.timeline import UNKNOWN, GroupTimeline
from ncclprobe.model.report import Cause

if TYPE_CHECKING:
    from array import array

_FIRST_SEQ = 1  # torch counts from 0 or from 1

Tokens = dict[int, "array[int]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A divergence at `seq`. `sides` are in order of size, the largest first. `basis` says how the cause was told.

    `guilty` are the ranks of both sides where no side is most of the group's members and nothing else tells; `is_open`:
    they are no more than suspects. Not `has_past`: no earlier call is held by all, so the ranks may have parted before.
    """

    timeline: GroupTimeline
    seq: int
    sides: tuple[Side, ...]
    cause: Cause
    guilty: tuple[int, ...]
    basis: str
    has_majority: bool
    is_open: bool = False
    has_past: bool = True

    @property
    def is_of_parts(self) -> bool:
        """Whether all made the same call, and only their parts in it do not fit: its root, or who sends how much."""
        return len({side.token for side in self.sides}) == 1

    @property
    def is_whole(self) -> bool:
        """Whether every member left a dump, and none of those is damaged."""
        return not self.timeline.silent and all(track.recording.is_whole for track in self.timeline.tracks.values())

    @property
    def guilty_side(self) -> Side:
        """The side of the first guilty rank; the smallest where nobody is named."""
        return next((side for side in self.sides if set(side.ranks) & set(self.guilty)), self.sides[-1])

    @property
    def other_side(self) -> Side:
        """The largest side that is not the guilty one."""
        return next(side for side in self.sides if side is not self.guilty_side)


def find_mismatch(timeline: GroupTimeline) -> Mismatch | None:
    """The earliest disagreement within what all rings still hold."""
    tokens = tokens_of(timeline.tracks.values())
    firsts = {rank: track.first_seq for rank, track in timeline.tracks.items()}
    seq = _first_difference(tokens, firsts)
    if seq is not None:
        return _mismatch(timeline, tokens, firsts, seq)
    conflict = find_root_conflict(timeline) or find_split_conflict(timeline)
    return _of_parts(timeline, conflict) if conflict else None


def _first_difference(tokens: Tokens, firsts: dict[int, int]) -> int | None:
    """Compares whole slices, so that ranks that agree cost one comparison each, however long their history."""
    if len(tokens) < 2:
        return None
    start = max(firsts.values())
    longest = max(tokens, key=lambda rank: firsts[rank] + len(tokens[rank]))
    joint, found = tokens[longest][start - firsts[longest] :], None
    for rank, of_rank in tokens.items():
        own = of_rank[start - firsts[rank] :][: len(joint)]
        at = _first_unlike(own, joint) if own != joint[: len(own)] else None
        if at is not None:
            found, joint = start + at, joint[:at]
    return found


def _first_unlike(own: "array[int]", joint: "array[int]") -> int | None:
    """Where both are known and differ. What `joint` lacks until then is filled in, for the ranks that follow."""
    for at, (token, known) in enumerate(zip(own, joint, strict=False)):
        if UNKNOWN not in (token, known) and token != known:
            return at
        if known == UNKNOWN:
            joint[at] = token
    return None


def _mismatch(timeline: GroupTimeline, tokens: Tokens, firsts: dict[int, int], seq: int) -> Mismatch:
    sides = tuple(sides_at(timeline, tokens, seq))
    after = {rank: tokens[rank][seq - firsts[rank] :] for side in sides for rank in side.ranks}
    history = _common_history(tokens, firsts, sides[0].ranks[0], seq)
    found = explain(Divergence(timeline=timeline, sides=sides, after=after, history=history))
    # Of all members, not of those that were heard: the others may have done what the few did.
    has_majority = 2 * len(sides[0].ranks) > len(timeline.members)
    minority = tuple(sorted(rank for side in sides[1:] for rank in side.ranks))
    everyone = tuple(sorted(rank for side in sides for rank in side.ranks))
    named = minority if found.guilty is None else found.guilty
    return Mismatch(
        timeline=timeline,
        seq=seq,
        sides=sides,
        cause=found.cause,
        guilty=named if has_majority or found.is_sure_of_guilty else everyone,
        basis=found.basis,
        has_majority=has_majority,
        has_past=bool(history) or seq <= _FIRST_SEQ,
    )


def _common_history(tokens: Tokens, firsts: dict[int, int], rank: int, seq: int) -> Sequence[int]:
    """What every rank did before `seq`, as far back as all rings reach."""
    start = max(first for first in firsts.values() if first <= seq)
    return tokens[rank][start - firsts[rank] : seq - firsts[rank]]


def _of_parts(timeline: GroupTimeline, conflict: Conflict) -> Mismatch | None:
    others = tuple(rank for rank in sorted(timeline.tracks) if rank not in conflict.ranks)
    parted = (others, conflict.ranks) if others else (conflict.ranks[1:], conflict.ranks[:1])
    sides = tuple(side for side in (side_of(timeline, 0, ranks, conflict.seq) for ranks in parted) if side)
    if len(sides) < 2:
        return None
    return Mismatch(
        timeline=timeline,
        seq=conflict.seq,
        sides=sides,
        cause=Cause.COLLECTIVE_SHAPE_MISMATCH,
        guilty=conflict.ranks,
        basis=conflict.basis,
        has_majority=not conflict.is_open,
        is_open=conflict.is_open,
    )
