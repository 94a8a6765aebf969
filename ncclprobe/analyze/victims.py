"""Who waits for whom, group by group, and how that leads to the ranks a verdict names.

In: a `Case` and the named ranks. Out: `Waiting`: for each process group the calls that members wait in, whom for, and
over how many hops they wait for a named rank.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.heads import CallKey, Head
from ncclprobe.model.collectives import ProcessGroup
from ncclprobe.model.folding import fold
from ncclprobe.model.report import GroupWait

GroupId = tuple[object, ...]
"""A group told by its name, size and ends: hashing all members once for each of them is quadratic in a big group."""

_CallId = tuple[GroupId, int, int, int]


@dataclass(slots=True)
class _Wait:
    """Ranks that wait in the same call of one group for the same others."""

    group: ProcessGroup
    op: str
    seq: int | None
    is_named: bool
    targets: frozenset[int]
    ranks: list[int] = field(default_factory=list)
    hops: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """`groups` are those somebody waits in, in order of name. `victims` wait, over any hops, for a named rank."""

    groups: tuple[ProcessGroup, ...]
    victims: tuple[int, ...]
    of_group: dict[GroupId, tuple[GroupWait, ...]]

    def of(self, group: ProcessGroup) -> tuple[GroupWait, ...]:
        """The waits in a group, those nearest to a named rank first."""
        return self.of_group.get(group_id(group), ())


def group_id(group: ProcessGroup) -> GroupId:
    """The same for all members of a group."""
    return _group_id(group.name, group.ranks)


def _group_id(name: str, ranks: tuple[int, ...]) -> GroupId:
    return name, len(ranks), ranks[:1], ranks[-1:]


def find_waiting(case: Case, named: Iterable[int]) -> Waiting:
    """Ranks whose recorder does not tell what they wait in are left out."""
    guilty = frozenset(named)
    waits = _waits(case, guilty)
    _count_hops(waits, guilty)
    by_group: dict[GroupId, list[_Wait]] = defaultdict(list)
    for wait in waits:
        by_group[group_id(wait.group)].append(wait)
    groups = {group_id(wait.group): wait.group for wait in waits}
    return Waiting(
        groups=tuple(sorted(groups.values(), key=lambda group: (group.name, group.ranks))),
        victims=tuple(sorted(rank for w in waits if w.hops is not None for rank in w.ranks if rank not in guilty)),
        of_group={key: tuple(_stated(wait) for wait in sorted(found, key=_order)) for key, found in by_group.items()},
    )


def _waits(case: Case, guilty: frozenset[int]) -> list[_Wait]:
    targets = _targets(case, guilty)
    unheard = set(case.waits.unheard)
    waits: dict[tuple[object, ...], _Wait] = {}
    for rank, head in case.waits.heads.items():
        if rank in unheard:
            continue
        calls = tuple(map(_call_id, head.keys))
        holds_itself = any(rank in targets.get(call, ()) for call in calls)
        key = (calls, head.call.signature.op, rank in guilty, rank if holds_itself else None)
        if key not in waits:
            waits[key] = _wait(head, frozenset().union(*(targets.get(call, ()) for call in calls)), rank in guilty)
        waits[key].ranks.append(rank)
    return list(waits.values())


def _wait(head: Head, targets: frozenset[int], is_named: bool) -> _Wait:
    """A rank that holds up its own collective waits for nobody; one end of a send may hold up the other too."""
    if head.rank in targets:
        targets = targets - {head.rank} if head.call.is_p2p else frozenset()
    seq = None if head.call.is_p2p else head.call.seq
    return _Wait(head.call.group, head.call.signature.op, seq, is_named, targets)


def _call_id(key: CallKey) -> _CallId:
    return _group_id(key.group, key.members), key.seq, key.source, key.destination


def _targets(case: Case, guilty: frozenset[int]) -> dict[_CallId, frozenset[int]]:
    """By call, who holds it up: by the wait-for graph, by being named though unheard, else by a divergence."""
    silent = guilty.intersection(case.waits.unheard)
    diverged = {group_id(m.timeline.group): m for m in case.mismatches if guilty.issuperset(m.guilty)}
    targets = {}
    for key, holders in case.waits.holders.items():
        call = _call_id(key)
        found = frozenset(holders) | silent.intersection(key.members)
        mismatch = diverged.get(call[0])
        if not found and mismatch and not key.is_p2p and key.seq >= mismatch.seq:
            found = frozenset(mismatch.guilty)
        targets[call] = found
    return targets


def _count_hops(waits: list[_Wait], guilty: frozenset[int]) -> None:
    """Breadth first from the named ranks. What a named rank itself waits in counts only where it is for another one."""
    held_by: dict[int, list[_Wait]] = defaultdict(list)
    for wait in waits:
        for rank in wait.targets & guilty if wait.is_named else wait.targets:
            held_by[rank].append(wait)
    queue = deque((rank, 1) for rank in sorted(guilty))
    while queue:
        rank, hops = queue.popleft()
        for wait in held_by.pop(rank, ()):
            if wait.hops is None:
                wait.hops = hops
                queue.extend((victim, hops + 1) for victim in wait.ranks if victim not in guilty)


def _order(wait: _Wait) -> tuple[bool, int, list[int]]:
    return wait.hops is None, wait.hops or 0, wait.ranks


def _stated(wait: _Wait) -> GroupWait:
    return GroupWait(ranks=fold(wait.ranks), waits_for=fold(wait.targets), op=wait.op, seq=wait.seq, hops=wait.hops)
