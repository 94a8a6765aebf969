"""How far each rank has come in each group, from the recorder's own counters where its entries do not reach.

In: recordings. Out: `Frontier` per group and rank: the last collective issued and the last ended.

`pg_status` survives a wrapped ring and an only-active dump. It is keyed by the rank's own `pg_id`, which entries map to
a group; where a rank has no entries, its groups were made in order of their numeric names (torch numbers groups as
they are made, in every process alike), so that the sorted ids and the sorted names pair up. In groups that also do
point-to-point, torch writes whichever counter moved last there, so it says nothing of the collectives; nor does gloo's.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import compress

from ncclprobe.analyze.timeline import GroupTimeline
from ncclprobe.model.collectives import GroupStatus, Recording
from ncclprobe.model.records import Sourced

GroupKey = tuple[str, tuple[int, ...]]
"""Name and member ranks: equal names with other members are other groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """The last collective a rank issued in a group, and the last that ended; None is unknown."""

    issued: int | None
    ended: int | None


def find_frontiers(recordings: Iterable[Sourced[Recording]]) -> dict[GroupKey, dict[int, Frontier]]:
    """By group, then by rank; only what the recorders' counters tell."""
    known = [sourced for sourced in recordings if sourced.artifact.rank is not None]
    mixed = {key for sourced in known for key in _groups_with_p2p(sourced.record)}
    frontiers: dict[GroupKey, dict[int, Frontier]] = defaultdict(dict)
    for sourced in sorted(known, key=lambda s: s.artifact.path):
        if "gloo" in sourced.record.backends:
            continue
        for key, status in _statuses(sourced.record):
            if key not in mixed:
                rank = sourced.artifact.rank
                assert rank is not None
                frontiers[key][rank] = Frontier(issued=status.last_enqueued, ended=status.last_completed)
    return dict(frontiers)


def find_doubtful(
    timelines: Iterable[GroupTimeline], frontiers: dict[GroupKey, dict[int, Frontier]], nameless: Iterable[int]
) -> frozenset[int]:
    """Ranks whose earliest outstanding call is not known.

    Either it has left the ring: the counter of ended calls is below the oldest one still held. Or the dump does not say
    which group a call is in (`nameless`): torch 2.2 wrote only a number that each process counts for itself.
    """
    found = set(nameless)
    for timeline in timelines:
        of_rank = frontiers.get((timeline.group.name, timeline.group.ranks), {})
        for rank, track in timeline.tracks.items():
            frontier = of_rank.get(rank)
            if frontier is not None and frontier.ended is not None and frontier.ended + 1 < track.first_seq:
                found.add(rank)
    return frozenset(found)


def find_nameless(recordings: Iterable[Sourced[Recording]]) -> frozenset[int]:
    """Ranks with more than one group in a dump that names none of them."""
    return frozenset(
        sourced.artifact.rank
        for sourced in recordings
        if sourced.artifact.rank is not None
        and sourced.record.version.startswith("1.0")
        and len(sourced.record.groups) > 1
    )


def _groups_with_p2p(recording: Recording) -> set[GroupKey]:
    indexes = set(compress(recording.group_of, recording.is_p2p))
    return {(recording.groups[index].name, recording.groups[index].ranks) for index in indexes}


def _statuses(recording: Recording) -> Iterable[tuple[GroupKey, GroupStatus]]:
    by_creation = _by_creation(recording)
    for pg_id, status in recording.statuses.items():
        index = recording.group_of_id.get(pg_id, by_creation.get(pg_id))
        if index is not None:
            group = recording.groups[index]
            yield (group.name, group.ranks), status


def _by_creation(recording: Recording) -> dict[str, int]:
    names = [group.name for group in recording.groups]
    if len(names) != len(recording.statuses) or not all(n.isdigit() for n in (*names, *recording.statuses)):
        return {}
    in_order = sorted(range(len(names)), key=lambda index: int(names[index]))
    return dict(zip(sorted(recording.statuses, key=int), in_order, strict=True))
