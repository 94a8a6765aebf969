"""The first call on which the members of a group disagree, and what kind of disagreement it is.

In: a `GroupTimeline`. Out: a `Mismatch`, or None where all calls that can be compared agree.

At the first sequence number where signatures differ, three things are tried in turn. (1) What follows: do the sequences
agree again once k calls are put in or left out on one side? (2) Nothing follows, because the calls block: then the
job's own period predicts the call, and who departs from it has changed its path. (3) Otherwise the calls are what
differs, in op or in shape.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ncclprobe.analyze.timeline import UNKNOWN, GroupTimeline, Tokens
from ncclprobe.model.collectives import CollectiveCall
from ncclprobe.model.report import Cause

if TYPE_CHECKING:
    from array import array

_MAX_SHIFT = 16
_MIN_REALIGNED = 2
_MIN_PERIODS = 3
_MAX_PERIOD = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Ranks that issued the same call at the divergence, and that call as the first of them made it."""

    ranks: tuple[int, ...]
    call: CollectiveCall
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A divergence at `seq`. `sides` are in order of size, the largest first. `basis` says how the cause was told.

    `guilty` are the ranks of both sides where no side is most of the group's members.
    """

    timeline: GroupTimeline
    seq: int
    sides: tuple[Side, ...]
    absent: tuple[int, ...]
    cause: Cause
    guilty: tuple[int, ...]
    basis: str
    has_majority: bool
    shift: int = 0

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
    tokens = Tokens()
    sequences = {rank: tokens.of(track) for rank, track in sorted(timeline.tracks.items())}
    firsts = {rank: track.first_seq for rank, track in timeline.tracks.items()}
    seq = _first_difference(sequences, firsts)
    return _classify(timeline, sequences, firsts, seq) if seq is not None else None


def _first_difference(sequences: "dict[int, array[int]]", firsts: dict[int, int]) -> int | None:
    """Compares whole slices, so that ranks that agree cost one comparison each, however long their history."""
    if len(sequences) < 2:
        return None
    start = max(firsts.values())
    ends = {rank: firsts[rank] + len(sequence) for rank, sequence in sequences.items()}
    for end in sorted({end for end in ends.values() if end > start}):
        present = [rank for rank in sequences if ends[rank] >= end]
        slices = {bytes(memoryview(sequences[r])[start - firsts[r] : end - firsts[r]].cast("B")): r for r in present}
        if len(slices) > 1:
            return _first_in(sequences, firsts, sorted(slices.values()), start, end)
        start = end
    return None


def _first_in(
    sequences: "dict[int, array[int]]", firsts: dict[int, int], ranks: list[int], start: int, end: int
) -> int | None:
    for seq in range(start, end):
        if len({sequences[rank][seq - firsts[rank]] for rank in ranks} - {UNKNOWN}) > 1:
            return seq
    return None


def _classify(
    timeline: GroupTimeline, sequences: "dict[int, array[int]]", firsts: dict[int, int], seq: int
) -> Mismatch:
    sides, absent = _sides(timeline, sequences, firsts, seq)
    after = {rank: sequences[rank][seq - firsts[rank] :] for side in sides for rank in side.ranks}
    before = _common_history(sequences, firsts, sides[0].ranks[0], seq)
    # Of all members, not of those that were heard: the others may have done what the few did.
    has_majority = 2 * len(sides[0].ranks) > len(timeline.members)
    verdict = (
        _by_what_follows(sides, after)
        or _by_shape(sides)
        or _by_period(timeline, sides, before, seq)
        or _by_difference(sides)
    )
    minority = tuple(sorted(rank for side in sides[1:] for rank in side.ranks))
    everyone = tuple(sorted(rank for side in sides for rank in side.ranks))
    cause, guilty, basis, shift = verdict
    return Mismatch(
        timeline=timeline,
        seq=seq,
        sides=tuple(sides),
        absent=tuple(sorted(absent)),
        cause=cause,
        guilty=(minority if guilty is None else guilty) if has_majority else everyone,
        basis=basis,
        has_majority=has_majority,
        shift=shift,
    )


_Verdict = tuple[Cause, "tuple[int, ...] | None", str, int]


def _sides(
    timeline: GroupTimeline, sequences: "dict[int, array[int]]", firsts: dict[int, int], seq: int
) -> tuple[list[Side], list[int]]:
    ranks_of: dict[int, list[int]] = defaultdict(list)
    absent = []
    for rank, sequence in sequences.items():
        at = seq - firsts[rank]
        if at >= len(sequence) or sequence[at] == UNKNOWN:
            absent.append(rank)
        else:
            ranks_of[sequence[at]].append(rank)
    sides = []
    for token, ranks in ranks_of.items():
        call = timeline.tracks[ranks[0]].call(seq)
        if call is not None:
            sides.append(Side(ranks=tuple(ranks), call=call, token=token))
    return sorted(sides, key=lambda side: (-len(side.ranks), side.ranks)), absent


def _common_history(sequences: "dict[int, array[int]]", firsts: dict[int, int], rank: int, seq: int) -> Sequence[int]:
    """What every rank did before `seq`, as far back as all rings reach."""
    start = max(first for first in firsts.values() if first <= seq)
    return sequences[rank][start - firsts[rank] : seq - firsts[rank]]


def _by_what_follows(sides: list[Side], after: "dict[int, array[int]]") -> _Verdict | None:
    """The minority's calls go on as the others' do, after k calls are put in or left out."""
    if len(sides) != 2 or len(sides[0].ranks) == len(sides[1].ranks):
        return None
    most, few = (after[side.ranks[0]] for side in sides)
    substituted, shifted = _by_substitution(sides, most, few), _by_shift(sides, most, few)
    # Where both fit, the count tells: a rank with a call more has issued one more than the others by now.
    is_count_shifted = shifted is not None and abs(len(few) - len(most)) == shifted[3]
    return _by_swap(sides, most, few) or (shifted if is_count_shifted else substituted or shifted)


def _by_swap(sides: list[Side], most: "array[int]", few: "array[int]") -> _Verdict | None:
    """Two calls in the other order, and nothing else."""
    overlap = min(len(most), len(few))
    if overlap >= _MIN_REALIGNED and few[:2] == most[1::-1] and few[2:overlap] == most[2:overlap]:
        return Cause.COLLECTIVE_DESYNC, sides[1].ranks, "the same two calls come in the other order", 0
    return None


def _by_substitution(sides: list[Side], most: "array[int]", few: "array[int]") -> _Verdict | None:
    """One call is another in its place, and all that follows is the same."""
    overlap = min(len(most), len(few))
    if overlap < _MIN_REALIGNED or most[1:overlap] != few[1:overlap] or _sites_differ(sides):
        return None
    is_same_op = sides[0].call.signature.op == sides[1].call.signature.op
    cause = Cause.COLLECTIVE_SHAPE_MISMATCH if is_same_op else Cause.COLLECTIVE_OP_MISMATCH
    return cause, sides[1].ranks, f"the next {overlap - 1} calls are the same on both sides", 0


def _sites_differ(sides: list[Side]) -> bool:
    """Whether the user's lines are known and differ: then the path is another, and not only the data."""
    lines = [[(f.file, f.line) for f in side.call.stack if f.is_user_code] for side in sides]
    return all(lines) and lines[0] != lines[1]


def _by_shift(sides: list[Side], most: "array[int]", few: "array[int]") -> _Verdict | None:
    """The few have some calls more, or some fewer."""
    for shift in range(1, _MAX_SHIFT + 1):
        for cause, longer, shorter in ((Cause.COLLECTIVE_EXTRA, few, most), (Cause.COLLECTIVE_SKIPPED, most, few)):
            overlap = min(len(longer) - shift, len(shorter))
            if overlap >= _MIN_REALIGNED and longer[shift : shift + overlap] == shorter[:overlap]:
                if len(set(shorter[:overlap])) == 1 and len(set(longer[:shift])) == 1 and longer[0] == shorter[0]:
                    continue
                basis = f"the next {overlap} calls agree again when {shift} before them is left out"
                return cause, sides[1].ranks, basis, shift
    return None


def _by_shape(sides: list[Side]) -> _Verdict | None:
    """Same op from the same line of user code: the data differs, not the path."""
    ops = {side.call.signature.op for side in sides}
    sites = {tuple((f.file, f.line) for f in side.call.stack) for side in sides}
    if len(ops) == 1 and len(sites) == 1 and () not in sites:
        return Cause.COLLECTIVE_SHAPE_MISMATCH, None, "all of them came from the same line, with other data", 0
    return None


def _by_period(timeline: GroupTimeline, sides: list[Side], history: Sequence[int], seq: int) -> _Verdict | None:
    """The job repeats itself: who does what the last rounds predict has kept its path."""
    period = find_period(history)
    if period is None:
        return None
    expected = history[len(history) - period]
    keeping = [side for side in sides if side.token == expected]
    departing = [side for side in sides if side.token != expected]
    if len(keeping) != 1 or not departing:
        return None
    basis = f"the group's last calls repeat with period {period}; the next one is {keeping[0].call.signature}"
    departed = tuple(sorted(rank for side in departing for rank in side.ranks))
    if len(departed) > len(keeping[0].ranks):
        return _majority_departs(timeline, keeping[0], departing, history, basis)
    if len(departed) == len(keeping[0].ranks):
        return Cause.COLLECTIVE_DESYNC, None, basis, 0
    later_in_period = set(history[len(history) - period + 1 :]) if period > 1 else set()
    is_skip = all(side.token in later_in_period for side in departing)
    return (Cause.COLLECTIVE_SKIPPED if is_skip else Cause.COLLECTIVE_EXTRA), departed, basis, 0


def _majority_departs(
    timeline: GroupTimeline, keeping: Side, departing: list[Side], history: Sequence[int], basis: str
) -> _Verdict:
    """Most ranks left the period together. If they have done so before, the few that stayed missed a call."""
    was_done_before = len(departing) == 1 and departing[0].token in history
    if was_done_before:
        said = f"all ranks have issued {departing[0].call.signature} here before, between the same calls"
        return Cause.COLLECTIVE_SKIPPED, keeping.ranks, said, 0
    return Cause.COLLECTIVE_DESYNC, keeping.ranks, basis + ", yet most ranks left that path together", 0


def _by_difference(sides: list[Side]) -> _Verdict:
    ops = {side.call.signature.op for side in sides}
    if len(ops) > 1:
        return Cause.COLLECTIVE_OP_MISMATCH, None, "the ops differ, and nothing earlier or later explains it", 0
    return Cause.COLLECTIVE_SHAPE_MISMATCH, None, "the op is the same, sizes or types differ", 0


def find_period(history: Sequence[int]) -> int | None:
    """The shortest p for which the last calls repeat, at least three times over; None for a history without one."""
    length = len(history)
    for period in range(1, min(_MAX_PERIOD, length // _MIN_PERIODS) + 1):
        window = period * (_MIN_PERIODS - 1)
        tail = list(history[length - window :])
        if tail == list(history[length - window - period : length - period]):
            return period
    return None
