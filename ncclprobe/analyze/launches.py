"""Launches counted per communicator, as NCCL's RAS service reports them, at one look or several.

In: RAS reports. Out: `Launches`: for each communicator and operation who has launched how many, look by look.

Counts are of launches, never of completions. A report as text lists few members and gives the others as a number; the
lowest count is who has not arrived, whether listed or not.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from ncclprobe.model.ras import RasCommunicator, RasReport
from ncclprobe.model.records import Evidence, Sourced

Look = Sourced[RasReport]
Process = tuple[str | None, int | None]
"""Host and pid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """One operation of one communicator at one look. `of_rank` holds members by number; `others` those not listed."""

    op: str
    of_rank: dict[int, int]
    others: int | None = None

    @property
    def furthest(self) -> int:
        """The highest count."""
        known = [*self.of_rank.values(), *([self.others] if self.others is not None else [])]
        return max(known, default=0)

    def behind(self, size: int | None) -> tuple[int, ...]:
        """Members with fewer launches than the furthest; () when it is not known who the unlisted are."""
        low = {rank for rank, count in self.of_rank.items() if count < self.furthest}
        if self.others is not None and self.others < self.furthest:
            low |= set(range(size or 0)) - set(self.of_rank)
        return tuple(sorted(low))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicatorLooks:
    """A communicator, as each look shows it. `process_of`: its members' processes, those that are listed."""

    id: str
    size: int | None
    looks: tuple[tuple[Look, dict[str, Counts]], ...]
    process_of: dict[int, Process] = field(default_factory=dict)

    @property
    def has_moved(self) -> bool | None:
        """Whether every member launched more between the first and the last look; None with one look."""
        if len(self.looks) < 2:
            return None
        first, last = self.looks[0][1], self.looks[-1][1]
        return any(_lowest(last[op]) > first[op].furthest for op in last if op in first)

    @property
    def is_frozen(self) -> bool:
        """Whether two looks show the very same counts."""
        return len(self.looks) > 1 and self.looks[0][1] == self.looks[-1][1]

    def lagging(self) -> tuple[str, tuple[int, ...]] | None:
        """The operation in which the same members were behind at all looks, and those members."""
        for op, counts in sorted(self.looks[-1][1].items()):
            behind = counts.behind(self.size)
            others = (earlier[op].behind(self.size) for _, earlier in self.looks if op in earlier)
            if behind and all(other == behind for other in others):
                return op, behind
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """`world_size`: members of the largest communicator. `heard`: its members with a line of their own, or counted.

    `process_of`: the processes of its members, as far as they are listed.
    """

    looks: tuple[Look, ...] = ()
    communicators: tuple[CommunicatorLooks, ...] = ()
    world_size: int | None = None
    heard: frozenset[int] = frozenset()
    process_of: dict[int, Process] = field(default_factory=dict)

    @property
    def world(self) -> CommunicatorLooks | None:
        """The communicator of all ranks: the largest one, when no other is as large."""
        largest = [comm for comm in self.communicators if comm.size is not None and comm.size == self.world_size]
        return largest[0] if len(largest) == 1 else None

    def rank_with(self, pid: int | None) -> int | None:
        """The rank of a process, where all are listed and no other has its pid: RAS names hosts by address."""
        ranks = [rank for rank, (_, other) in self.process_of.items() if pid is not None and other == pid]
        return ranks[0] if len(ranks) == 1 and len(self.process_of) == self.world_size else None


def join_launches(evidence: Evidence) -> Launches:
    """Looks in order of time, else of their files' names."""
    looks = sorted(evidence.ras_reports, key=lambda look: (_time_of(look), look.artifact.path))
    seen: dict[str, list[tuple[Look, dict[str, Counts]]]] = defaultdict(list)
    sizes: dict[str, int | None] = {}
    members: dict[str, dict[int, Process]] = defaultdict(dict)
    for look in looks:
        for comm in look.record.communicators:
            seen[comm.id].append((look, _counts(comm)))
            members[comm.id].update({rank.rank: (rank.host, rank.pid) for rank in comm.ranks})
            sizes[comm.id] = comm.size if comm.size is not None else sizes.get(comm.id)
    world_size = max((size for size in sizes.values() if size is not None), default=None)
    worlds = [name for name, size in sizes.items() if size is not None and size == world_size]
    communicators = tuple(
        CommunicatorLooks(id=name, size=sizes[name], looks=tuple(those), process_of=members[name])
        for name, those in sorted(seen.items())
    )
    return Launches(
        looks=tuple(looks),
        communicators=communicators,
        world_size=world_size,
        heard=frozenset(_heard(looks, world_size)),
        process_of=members[worlds[0]] if len(worlds) == 1 else {},
    )


def _time_of(look: Look) -> int:
    return look.record.when_ns or look.artifact.start_ns or 0


def _lowest(counts: Counts) -> int:
    known = [*counts.of_rank.values(), *([counts.others] if counts.others is not None else [])]
    return min(known, default=0)


def _counts(comm: RasCommunicator) -> dict[str, Counts]:
    ops = {common.op for common in comm.commons} | {op for rank in comm.ranks for op in rank.counts}
    others = {common.op: common.count for common in comm.commons}
    return {
        op: Counts(op=op, of_rank={r.rank: r.counts[op] for r in comm.ranks if op in r.counts}, others=others.get(op))
        for op in sorted(ops)
    }


def _heard(looks: list[Look], world_size: int | None) -> set[int]:
    """Members of the communicator of all ranks that answered; a text report counts those it does not list."""
    heard: set[int] = set()
    for look in looks:
        for comm in look.record.communicators:
            if comm.size is None or comm.size != world_size:
                continue
            absent = {rank.rank for rank in comm.ranks if rank.state in ("missing", "unresponsive", "dead")}
            listed = {rank.rank for rank in comm.ranks} - absent
            is_text = bool(comm.commons) or len(comm.ranks) < comm.size
            heard |= set(range(comm.size)) - absent if is_text and not look.record.silent else listed
    return heard
