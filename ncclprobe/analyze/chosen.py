"""Which of the dumps speak of this job, and of now.

In: all recordings. Out: a `Choice`: those to analyse, those of an earlier look at the same ranks, and a gap for each
that was left out: dumps of another job that lie among them, and older dumps of a rank that has a newer one.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ncclprobe.analyze.frontier import GroupKey
from ncclprobe.model.collectives import Recording
from ncclprobe.model.evidence import Gap
from ncclprobe.model.records import Sourced

Dumps = tuple[Sourced[Recording], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`dumps` speak of now, `earlier` of the same ranks at an earlier look, `gaps` of those that were left out."""

    dumps: Dumps
    earlier: Dumps
    gaps: tuple[Gap, ...]


def choose(recordings: Iterable[Sourced[Recording]]) -> Choice:
    """The same for any order of files."""
    ordered = tuple(sorted(recordings, key=lambda sourced: sourced.artifact.path))
    of_job, foreign = _of_one_job(ordered)
    newest, older = _newest(of_job)
    looks = {sourced.artifact.rank: sourced.artifact.look or 0 for sourced in newest}
    earlier = tuple(sourced for sourced in older if 0 < (sourced.artifact.look or 0) < looks[sourced.artifact.rank])
    gaps = *map(_foreign_gap, foreign), *map(_older_gap, _without(older, earlier))
    return Choice(dumps=newest, earlier=earlier, gaps=gaps)


def _of_one_job(dumps: Dumps) -> tuple[Dumps, Dumps]:
    """By the members of the default group: two jobs of other sizes cannot be one. The one with most dumps is meant."""
    counts: dict[tuple[int, ...], int] = defaultdict(int)
    for sourced in dumps:
        counts[_world(sourced.record)] += 1
    worlds = [world for world in counts if world]
    if len(worlds) < 2:
        return dumps, ()
    meant = max(worlds, key=lambda world: (counts[world], len(world), world))
    foreign = tuple(sourced for sourced in dumps if _world(sourced.record) not in (meant, ()))
    return _without(dumps, foreign), foreign


def _world(recording: Recording) -> tuple[int, ...]:
    return next((group.ranks for group in recording.groups if group.label == "default_pg"), ())


def _newest(dumps: Dumps) -> tuple[Dumps, Dumps]:
    """Of dumps of one rank that tell of the same group, the one read last; NCCL's and gloo's are not rivals."""
    best: dict[tuple[int, GroupKey], Sourced[Recording]] = {}
    for sourced in dumps:
        for key in _keys(sourced):
            rival = best.get(key)
            if rival is None or _moment(sourced) > _moment(rival):
                best[key] = sourced
    older = tuple(s for s in dumps if any(best[key] is not s for key in _keys(s)))
    return _without(dumps, older), older


def _without(dumps: Dumps, left_out: Dumps) -> Dumps:
    out = set(map(id, left_out))
    return tuple(sourced for sourced in dumps if id(sourced) not in out)


def _keys(sourced: Sourced[Recording]) -> list[tuple[int, GroupKey]]:
    rank = sourced.artifact.rank
    if rank is None:
        return []
    return [(rank, (group.name, group.ranks)) for group in sourced.record.groups]


def _moment(sourced: Sourced[Recording]) -> tuple[int, int, int]:
    """When it was read, if that is known; which look that was; and its newest call, for loose files."""
    artifact = sourced.artifact
    return artifact.end_ns or 0, artifact.look or 0, max(sourced.record.created_ns, default=0)


def _foreign_gap(sourced: Sourced[Recording]) -> Gap:
    size = len(_world(sourced.record))
    return Gap(
        who=f"rank {sourced.artifact.rank}",
        what=f"{sourced.artifact.path} was left out",
        why=f"it is of another job: its world has {size} ranks, that of most dumps another number",
        action="analyse the dumps of one job at a time",
    )


def _older_gap(sourced: Sourced[Recording]) -> Gap:
    return Gap(
        who=f"rank {sourced.artifact.rank}",
        what=f"{sourced.artifact.path} was left out",
        why="another dump of the same rank is newer",
        action="nothing, when both are of this job; else analyse the dumps of one job at a time",
    )
