"""Who issued what at one sequence number of a group.

In: a group's timeline, its calls as tokens, a number. Out: `Side`s, the largest first.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ncclprobe.analyze.agreement import ends_block
from ncclprobe.analyze.timeline import UNKNOWN, GroupTimeline, Track
from ncclprobe.model.collectives import CollectiveCall
from ncclprobe.model.frames import Stack

if TYPE_CHECKING:
    from array import array

Line = tuple[tuple[str, int | None], ...]
"""The user's frames of a stack, as (file, line)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Ranks that issued the same call at the divergence, and that call as the first of them made it."""

    ranks: tuple[int, ...]
    call: CollectiveCall
    token: int

    @property
    def line(self) -> Line:
        """The user's line that made it; empty where the dump does not tell."""
        return user_line(self.call.stack)


def user_line(stack: Stack) -> Line:
    """The user's frames, innermost first."""
    return tuple((frame.file, frame.line) for frame in stack if frame.is_user_code)


def sides_at(timeline: GroupTimeline, tokens: "dict[int, array[int]]", seq: int) -> list[Side]:
    """Ranks that hold no call of that number are on no side."""
    ranks_of: dict[int, list[int]] = defaultdict(list)
    for rank, of_rank in tokens.items():
        at = seq - timeline.tracks[rank].first_seq
        if 0 <= at < len(of_rank) and of_rank[at] != UNKNOWN:
            ranks_of[of_rank[at]].append(rank)
    made = (side_of(timeline, token, ranks, seq) for token, ranks in ranks_of.items())
    return sorted((side for side in made if side), key=lambda side: (-len(side.ranks), side.ranks))


def side_of(timeline: GroupTimeline, token: int, ranks: Iterable[int], seq: int) -> Side | None:
    """These ranks as a side."""
    ranks = tuple(ranks)
    call = _call(timeline.tracks[ranks[0]], seq) if ranks else None
    return Side(ranks=ranks, call=call, token=token) if call else None


def _call(track: Track, seq: int) -> CollectiveCall | None:
    """Of a block of coalesced calls the first one, which says more than what ends the block; ended when that is."""
    call = track.call(seq)
    if call is None or not ends_block(call.signature.op):
        return call
    first = track.recording.call(track.rows[track.seqs.index(seq)])
    return replace(first, is_completed=call.is_completed)
