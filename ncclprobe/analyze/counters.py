"""What the recorders' own counters are good for, and which ranks' dumps are too damaged to show what the rank waits in.

In: frontiers, heads, recordings. Out: the frontiers that can be trusted, and `Damaged` ranks.

In a damaged dump a call that is missing proves nothing: the rank may have made it. Only counters can still tell how
far the rank came, and an outstanding call that is left what it waits in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ncclprobe.analyze.frontier import Frontier, GroupKey
from ncclprobe.model.collectives import Recording
from ncclprobe.model.records import Sourced

Frontiers = dict[GroupKey, dict[int, Frontier]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """Ranks with a damaged dump. `hidden`: those of them that may wait in a call that was lost."""

    ranks: frozenset[int] = frozenset()
    hidden: frozenset[int] = frozenset()


def trust(frontiers: Frontiers) -> Frontiers:
    """Without groups where a rank has ended more than it has issued: there the counters count messages as well.

    Torch writes whichever counter moved last, and a dump of active calls alone no longer shows the messages.
    """
    return {key: of_rank for key, of_rank in frontiers.items() if not any(map(_is_of_two_kinds, of_rank.values()))}


def _is_of_two_kinds(frontier: Frontier) -> bool:
    return frontier.ended is not None and frontier.ended > (-1 if frontier.issued is None else frontier.issued)


def find_damaged(recordings: Iterable[Sourced[Recording]], waiting: Iterable[int], frontiers: Frontiers) -> Damaged:
    """`waiting` are the ranks whose outstanding call is known; one whose counters all rest waits for nothing."""
    known = ((s.artifact.rank, s.record) for s in recordings if s.artifact.rank is not None)
    ranks = frozenset(rank for rank, recording in known if not recording.is_whole)
    idle = (rank for rank in ranks if _is_idle(rank, frontiers))
    return Damaged(ranks=ranks, hidden=ranks.difference(waiting, idle))


def _is_idle(rank: int, frontiers: Mapping[GroupKey, Mapping[int, Frontier]]) -> bool:
    counted = [of_rank[rank] for of_rank in frontiers.values() if rank in of_rank]
    return bool(counted) and all(frontier.issued == frontier.ended for frontier in counted)
