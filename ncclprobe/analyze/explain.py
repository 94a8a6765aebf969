"""What kind of disagreement it is when members of a group issue different calls at one sequence number.

In: the `Side`s, what each issued after that, what all issued before. Out: an `Explanation`.

In this order: (1) what follows, where the calls go on: the sequences agree again once something is changed on one side.
(2) The same line of the user's code with other data. (3) The job's own habit: who does what came next before has kept
the path. (4) Whose line of code nobody else has ever used. (5) Otherwise the calls are what differs, in op or shape.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ncclprobe.analyze.periods import Expectation, expect
from ncclprobe.analyze.realign import Change, Kind, find_changes
from ncclprobe.analyze.sides import Line, Side
from ncclprobe.analyze.timeline import GroupTimeline
from ncclprobe.model.frames import Stack
from ncclprobe.model.report import Cause

if TYPE_CHECKING:
    from array import array


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`guilty`: None for whoever is not with most. `is_sure_of_guilty`: they are named even where nobody is most."""

    cause: Cause
    basis: str
    guilty: tuple[int, ...] | None = None
    is_sure_of_guilty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """`sides`, the largest first; what each rank issued `after` that, itself included; what all issued before."""

    timeline: GroupTimeline
    sides: tuple[Side, ...]
    after: "Mapping[int, array[int]]"
    history: Sequence[int]

    @property
    def most(self) -> Side:
        """The largest side; there may be others of its size."""
        return self.sides[0]

    @property
    def is_even(self) -> bool:
        """Whether no side is larger than all others."""
        return len(self.sides[0].ranks) == len(self.sides[1].ranks)

    def calls(self, side: Side) -> "array[int]":
        """What the side's first rank issued from the divergence on."""
        return self.after[side.ranks[0]]

    def is_whole(self, side: Side) -> bool:
        """Whether that rank's dump holds all of its last calls."""
        return self.timeline.tracks[side.ranks[0]].recording.is_whole


def explain(divergence: Divergence) -> Explanation:
    """The first explanation that fits."""
    expected = expect(divergence.history)
    return (
        _by_what_follows(divergence, expected)
        or _by_data(divergence)
        or (_by_habit(divergence, expected) if expected else None)
        or _by_line(divergence)
        or _by_difference(divergence)
    )


def _by_what_follows(divergence: Divergence, expected: Expectation | None) -> Explanation | None:
    """Each of the smaller sides compared with the largest; they must all have done the same kind of thing."""
    explained = [_realigned(divergence, few, expected) for few in divergence.sides[1:]]
    first = explained[0]
    if first is None or any(other is None or other.cause is not first.cause for other in explained):
        return None
    return first if len(explained) == 1 else Explanation(cause=first.cause, basis=first.basis)


def _realigned(divergence: Divergence, few: Side, expected: Expectation | None) -> Explanation | None:
    calls, others = divergence.calls(few), divergence.calls(divergence.most)
    is_count_known = divergence.is_whole(few) and divergence.is_whole(divergence.most)
    for change in find_changes(others, calls, is_count_known=is_count_known):
        # Other lines are another path, and not only other data, unless the count says that nothing was put in.
        is_replaced = change.kind is Kind.REPLACED
        if is_replaced and _lines_differ(few, divergence.most) and len(calls) != len(others):
            continue
        if change.shift and divergence.is_even:
            return _of_even_sides(divergence, few, change, expected)
        return _of_minority(divergence, few, change, expected)
    return None


def _of_minority(divergence: Divergence, few: Side, change: Change, expected: Expectation | None) -> Explanation:
    if change.kind is Kind.SWAPPED:
        return Explanation(cause=Cause.COLLECTIVE_DESYNC, basis="the same two calls come in the other order")
    if change.kind is Kind.REPLACED:
        basis = f"the next {change.agreeing} calls are the same on both sides"
        return Explanation(cause=_difference(divergence.most, few), basis=basis)
    basis = f"the next {change.agreeing} calls agree again when {change.shift} before them is left out"
    if change.kind is Kind.LEFT_OUT:
        return Explanation(cause=Cause.COLLECTIVE_SKIPPED, basis=basis)
    if expected and few.token == expected.token:
        return Explanation(cause=Cause.COLLECTIVE_DESYNC, basis=f"{basis}; yet {expected.basis}, and they keep to that")
    return Explanation(cause=Cause.COLLECTIVE_EXTRA, basis=basis)


def _of_even_sides(divergence: Divergence, few: Side, change: Change, expected: Expectation | None) -> Explanation:
    """One has calls more than the other. That it skipped what the other still does as ever, only habit can tell."""
    longer, shorter = (few, divergence.most) if change.kind is Kind.ADDED else (divergence.most, few)
    basis = f"the next {change.agreeing} calls agree again when {change.shift} before them is left out"
    if expected and longer.token == expected.token:
        return Explanation(
            cause=Cause.COLLECTIVE_SKIPPED,
            basis=f"{basis}; {expected.basis}, and the call left out is the one that came next",
            guilty=shorter.ranks,
            is_sure_of_guilty=len(divergence.sides) == 2,
        )
    return Explanation(cause=Cause.COLLECTIVE_DESYNC, basis=f"{basis}, and nothing tells on which side")


def _lines_differ(one: Side, other: Side) -> bool:
    return bool(one.line) and bool(other.line) and one.line != other.line


def _by_data(divergence: Divergence) -> Explanation | None:
    """Same op from the same line of user code: the data differs, not the path."""
    ops = {side.call.signature.op for side in divergence.sides}
    sites = {tuple((f.file, f.line) for f in side.call.stack) for side in divergence.sides}
    if len(ops) == 1 and len(sites) == 1 and () not in sites:
        basis = "all of them came from the same line, with other data"
        return Explanation(cause=Cause.COLLECTIVE_SHAPE_MISMATCH, basis=basis)
    return None


def _by_habit(divergence: Divergence, expected: Expectation) -> Explanation | None:
    """The job repeats itself: who does what comes next has kept its path."""
    keeping = [side for side in divergence.sides if side.token == expected.token]
    departing = [side for side in divergence.sides if side.token != expected.token]
    if len(keeping) != 1 or not departing:
        return None
    basis = f"{expected.basis}; the next one is {keeping[0].call.signature}"
    departed = tuple(sorted(rank for side in departing for rank in side.ranks))
    if len(departed) > len(keeping[0].ranks):
        return _majority_departs(divergence, keeping[0], departing, basis)
    if len(departed) == len(keeping[0].ranks):
        return Explanation(cause=Cause.COLLECTIVE_DESYNC, basis=basis)
    is_skip = all(side.token in expected.later and not _is_odd_line(divergence, side, keeping[0]) for side in departing)
    cause = Cause.COLLECTIVE_SKIPPED if is_skip else Cause.COLLECTIVE_EXTRA
    return Explanation(cause=cause, basis=basis, guilty=departed)


def _majority_departs(divergence: Divergence, keeping: Side, departing: list[Side], basis: str) -> Explanation:
    """Most ranks left the path together. If they have done so before, the few that stayed missed a call."""
    if len(departing) == 1 and departing[0].token in divergence.history:
        said = f"all ranks have issued {departing[0].call.signature} here before, between the same calls"
        return Explanation(cause=Cause.COLLECTIVE_SKIPPED, basis=said, guilty=keeping.ranks)
    basis += ", yet most ranks left that path together"
    return Explanation(cause=Cause.COLLECTIVE_DESYNC, basis=basis, guilty=keeping.ranks)


def _by_line(divergence: Divergence) -> Explanation | None:
    """One side calls from a line that no other rank has ever used, the other from one that all know."""
    if len(divergence.sides) != 2 or not _lines_differ(*divergence.sides):
        return None
    most, few = divergence.sides
    is_few_new, is_most_new = _is_new_to(divergence, few, most), _is_new_to(divergence, most, few)
    if is_few_new == is_most_new:
        return None
    if is_few_new and not divergence.is_even:
        basis = "no other rank has ever made a call from that line, and all have from the other"
        return Explanation(cause=Cause.COLLECTIVE_EXTRA, basis=basis)
    basis = "one call is from a line that the other side has never called from; nothing tells who should be there"
    return Explanation(cause=Cause.COLLECTIVE_DESYNC, basis=basis)


def _is_odd_line(divergence: Divergence, few: Side, most: Side) -> bool:
    """Whether the few call from a line that most have never used, though they know the line of most.

    A call that comes later in the round looks like it, but that one would come from its own line.
    """
    is_few_new = _is_new_to(divergence, few, most)
    return _lines_differ(few, most) and is_few_new and not _is_new_to(divergence, most, few)


def _is_new_to(divergence: Divergence, side: Side, others: Side) -> bool:
    """Whether none of the others has ever made a call from this side's line, as far back as their dumps reach."""
    tracks = divergence.timeline.tracks
    return not any(_uses(tracks[rank].recording.stacks, side.line) for rank in others.ranks)


def _uses(stacks: Iterable[Stack], line: Line) -> bool:
    return any({(frame.file, frame.line) for frame in stack}.issuperset(line) for stack in stacks)


def _by_difference(divergence: Divergence) -> Explanation:
    cause = _difference(*divergence.sides)
    if cause is Cause.COLLECTIVE_OP_MISMATCH:
        return Explanation(cause=cause, basis="the ops differ, and nothing earlier or later explains it")
    return Explanation(cause=cause, basis="the op is the same, sizes or types differ")


def _difference(*sides: Side) -> Cause:
    ops = {side.call.signature.op for side in sides}
    return Cause.COLLECTIVE_OP_MISMATCH if len(ops) > 1 else Cause.COLLECTIVE_SHAPE_MISMATCH
