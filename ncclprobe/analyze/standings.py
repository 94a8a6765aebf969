"""Where each rank stands in each process group, by what its log says of it.

In: `Logs`. Out: `GroupLog`s. A watchdog names the call a rank waits in and how far its group got; a rank that is told
to dump prints the same counters although it waits in nothing. Ranks are those of the job; a group that is not the
default one has only the members that spoke.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ncclprobe.analyze.logs import Logs, Said, is_before, moment
from ncclprobe.model.log import GroupProgress, LogGroup, WorkTimeout
from ncclprobe.model.report import BlockedOn

GroupName = tuple[str, str]
_UNNAMED: GroupName = ("", "")
_WORLD = "default_pg"
# Sizes may rightly differ between ranks in these; of a gather or scatter one side is empty on all ranks but the root.
_UNEVEN = frozenset({"coalesced", "send", "recv", "unknown"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One rank in one group. `waits`: its own watchdog's line; `counters`: the line with its furthest counters."""

    rank: int
    waits: Said | None = None
    counters: Said | None = None

    @property
    def work(self) -> WorkTimeout | None:
        """The call it waits in, where its watchdog named it."""
        what = self.waits.record.what if self.waits else None
        return what if isinstance(what, WorkTimeout) else None

    @property
    def progress(self) -> GroupProgress | None:
        """Its counters."""
        what = self.counters.record.what if self.counters else None
        return what if isinstance(what, GroupProgress) else None

    @property
    def group(self) -> LogGroup | None:
        """The group, with the rank's number inside, as its lines name it."""
        groups = (said.record.group for said in (self.waits, self.counters) if said)
        return next((group for group in groups if group), None)

    @property
    def enqueued(self) -> int | None:
        """The last call it issued; None when its log does not say, -1 when it says that there was none."""
        known = [self.work.seq] if self.work else []
        if self.progress and self.progress.last_enqueued is not None:
            known.append(self.progress.last_enqueued)
        return max(known, default=None)

    @property
    def waits_at(self) -> int | None:
        """The call it waits in."""
        if self.work:
            return self.work.seq
        progress = self.progress
        if progress is None or progress.last_enqueued is None:
            return None
        completed = progress.last_completed if progress.last_completed is not None else 0
        return completed + 1 if progress.last_enqueued > completed else None

    @property
    def said(self) -> Said:
        """The line to quote."""
        found = self.waits or self.counters
        assert found is not None
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLog:
    """A group as logs show it.

    `members` are all ranks of the job for the default group; else all of the group where something tells them, or
    those that spoke.
    """

    label: str
    is_world: bool
    standings: dict[int, Standing]
    members: tuple[int, ...]

    @property
    def seq(self) -> int | None:
        """The first call that a rank waits in."""
        return min((s.waits_at for s in self.standings.values() if s.waits_at is not None), default=None)

    @property
    def waiting(self) -> tuple[int, ...]:
        """Ranks that wait in that call."""
        return tuple(rank for rank, standing in self.standings.items() if standing.waits_at == self.seq)

    @property
    def behind(self) -> tuple[int, ...]:
        """Ranks whose own words show that they have not issued it."""
        seq = self.seq
        if seq is None:
            return ()
        return tuple(r for r, s in self.standings.items() if s.enqueued is not None and s.enqueued < seq)

    @property
    def ahead(self) -> tuple[int, ...]:
        """Ranks that wait in a later call."""
        seq = self.seq
        return tuple(r for r, s in self.standings.items() if seq is not None and (s.waits_at or seq) > seq)

    @property
    def silent(self) -> tuple[int, ...]:
        """Members whose logs say nothing of the group."""
        return tuple(rank for rank in self.members if rank not in self.standings)

    @property
    def sides(self) -> list[tuple[WorkTimeout, tuple[int, ...]]]:
        """The waiting ranks whose call is known, by what must agree; the largest side first."""
        by_call: dict[Any, list[int]] = defaultdict(list)
        works = {rank: self.standings[rank].work for rank in self.waiting}
        has_sizes = all(work.numel_in is not None for work in works.values() if work)
        for rank, work in works.items():
            if work:
                by_call[_agreed(work, has_sizes=has_sizes)].append(rank)
        sides = sorted(by_call.values(), key=lambda ranks: (-len(ranks), ranks))
        return [(work, tuple(ranks)) for ranks in sides if (work := works[ranks[0]])]

    @property
    def blocked_on(self) -> BlockedOn:
        """The call, for a report."""
        sides = self.sides
        timeout_ms = sides[0][0].timeout_ms if sides else None
        return BlockedOn(
            group=self.label,
            seq=self.seq,
            op=sides[0][0].op if sides else "unknown",
            timeout_s=timeout_ms / 1000 if timeout_ms else None,
        )


def _agreed(work: WorkTimeout, *, has_sizes: bool) -> tuple[object, ...]:
    """What all ranks of a group must have alike. A barrier is an all-reduce of one element (torch's NCCL backend)."""
    op = work.op
    if op == "all_reduce" and work.numel_in == 1:
        return ("barrier",)
    if not has_sizes or op in _UNEVEN or "all_to_all" in op or "alltoall" in op:
        return (op,)
    if "gather" in op and "all" not in op:
        return op, work.numel_in
    if "scatter" in op and "reduce" not in op:
        return op, work.numel_out
    return op, work.numel_in, work.numel_out


def find_standings(logs: Logs, expected: Iterable[int]) -> tuple[GroupLog, ...]:
    """Every group that a log speaks of, the one with most waiting ranks first."""
    by_group: dict[GroupName, dict[int, Standing]] = defaultdict(dict)
    for said in sorted(logs.of(GroupProgress), key=moment):
        _add_counters(by_group, said)
    for said in sorted(logs.of(WorkTimeout), key=moment):
        _add_wait(by_group, said, logs)
    everyone = tuple(sorted(expected))
    groups = [
        _group(name, standings, everyone, logs)
        for name, together in _merged(by_group).items()
        for standings in _apart(together)
    ]
    return tuple(sorted(groups, key=lambda group: (-len(group.waiting), group.label)))


def _name(group: LogGroup | None) -> GroupName:
    return (group.name, group.description) if group else _UNNAMED


def _add_counters(by_group: dict[GroupName, dict[int, Standing]], said: Said) -> None:
    """The furthest counters of a rank; what a rank prints later can only be more."""
    event, what = said.record, said.record.what
    if event.rank is None or not isinstance(what, GroupProgress):
        return
    of_rank = by_group[_name(event.group)]
    known = of_rank.get(event.rank, Standing(rank=event.rank))
    further = known.progress is None or (known.progress.last_enqueued or -1) < (what.last_enqueued or -1)
    of_rank[event.rank] = replace(known, counters=said) if further else known


def _add_wait(by_group: dict[GroupName, dict[int, Standing]], said: Said, logs: Logs) -> None:
    """Its first timeout in a group; later ones follow from it."""
    event, what = said.record, said.record.what
    if event.rank is None or not isinstance(what, WorkTimeout):
        return
    group = event.group or _group_of(said, what, logs)
    of_rank = by_group[_name(group)]
    known = of_rank.get(event.rank, Standing(rank=event.rank))
    if known.waits is None:
        of_rank[event.rank] = replace(known, waits=said)


def _group_of(said: Said, work: WorkTimeout, logs: Logs) -> LogGroup | None:
    """The watchdog's line does not name the group; the line with the counters that follows it does."""
    assert said.record.rank is not None
    fitting = []
    for other in logs.of_rank(said.record.rank, GroupProgress):
        what = other.record.what
        if isinstance(what, GroupProgress) and _is_about(what, work.seq):
            fitting.append((is_before(other, said) is True, other))
    return min(fitting, key=lambda pair: (pair[0], moment(pair[1])))[1].record.group if fitting else None


def _is_about(progress: GroupProgress, seq: int) -> bool:
    if progress.failed is not None:
        return progress.failed == seq
    completed = progress.last_completed if progress.last_completed is not None else -1
    return progress.last_enqueued is not None and completed < seq <= progress.last_enqueued


def _merged(by_group: dict[GroupName, dict[int, Standing]]) -> dict[GroupName, dict[int, Standing]]:
    """Lines without a group are of the one group there is, or of the default one."""
    named = [name for name in by_group if name != _UNNAMED]
    target = next((name for name in named if name[1] == _WORLD), named[0] if len(named) == 1 else None)
    if _UNNAMED not in by_group or target is None:
        return by_group
    for rank, standing in by_group.pop(_UNNAMED).items():
        known = by_group[target].get(rank)
        if known is None:
            by_group[target][rank] = standing
        else:
            merged = replace(known, waits=known.waits or standing.waits, counters=known.counters or standing.counters)
            by_group[target][rank] = merged
    return by_group


def _apart(standings: dict[int, Standing]) -> list[dict[int, Standing]]:
    """Where two ranks have one number, the name is that of several groups, and nobody knows who is with whom."""
    numbers = [standing.group.group_rank for standing in standings.values() if standing.group]
    if len(set(numbers)) == len(numbers):
        return [standings]
    return [{rank: standing} for rank, standing in standings.items()]


def _group(name: GroupName, standings: dict[int, Standing], everyone: tuple[int, ...], logs: Logs) -> GroupLog:
    is_world = _is_world(name, standings, everyone)
    ordered = dict(sorted(standings.items()))
    label = name[1] if name[1] not in ("", "undefined") else name[0] or _WORLD
    told = {rank for standing in standings.values() for rank in logs.members.whole(standing.group)}
    members = everyone if is_world else tuple(sorted(told | standings.keys()))
    return GroupLog(label=_WORLD if is_world else label, is_world=is_world, standings=ordered, members=members)


def _is_world(name: GroupName, standings: dict[int, Standing], everyone: tuple[int, ...]) -> bool:
    """The default group by its name; without names, one in which every rank has its global number and most spoke."""
    if name[1] == _WORLD or name == _UNNAMED:
        return True
    if name[1] not in ("", "undefined"):
        return False
    numbers = [(rank, standing.group.group_rank) for rank, standing in standings.items() if standing.group]
    return bool(numbers) and all(rank == number for rank, number in numbers) and 2 * len(standings) > len(everyone)
