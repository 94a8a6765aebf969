"""Which ranks of the job the numbers inside a process group mean.

In: log events and flight recorders. Out: `Members`.

Lines that name both their writer's rank in the job and the one in its group tell a member each, the recorders all of
them at once. torch gives the members of a group their numbers in the order of their ranks (new_group; it has an option
not to since 2.13), so a number between two known ones may be the only one that is left.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ncclprobe.model.collectives import Recording
from ncclprobe.model.log import GroupJoined, LogEvent, LogGroup
from ncclprobe.model.records import Sourced

Said = Sourced[LogEvent]
_Pair = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """`of_group`: by a group's GUID, its ranks in the job by their numbers inside. `sizes`: of groups that tell it."""

    of_group: dict[str, dict[int, int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def rank(self, group: LogGroup | None) -> int | None:
        """Who writes as that member; None where nothing tells."""
        if group is None or group.is_own_count:
            return None
        return _between(self.of_group.get(group.name, {}), group.group_rank)

    def whole(self, group: LogGroup | None) -> tuple[int, ...]:
        """All ranks of a group, in order; empty unless all are known."""
        if group is None or group.is_own_count:
            return ()
        known = self.of_group.get(group.name, {})
        return tuple(sorted(known.values())) if len(known) == self.sizes.get(group.name) else ()

    def meant(self, numbers: Iterable[int], known: Mapping[int, int]) -> tuple[int, ...] | None:
        """The ranks that numbers mean in a group of which these members are known; None where that is open.

        Groups that have these members among theirs must all give the same answer.
        """
        wanted = sorted(numbers)
        fitting = [group for group in self.of_group.values() if known.items() <= group.items()]
        answers = {tuple(_between(group, number) for number in wanted) for group in (known, *fitting)}
        clear = {answer for answer in answers if None not in answer}
        return tuple(sorted(rank for rank in clear.pop() if rank is not None)) if len(clear) == 1 else None


def find_members(events: Iterable[Said], recordings: Iterable[Sourced[Recording]]) -> Members:
    """A number that two ranks claim, or a rank with two numbers, leaves its group out."""
    events, recordings = list(events), list(recordings)
    claims: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for name, number, rank in (*_told(events), *_recorded(recordings)):
        claims[name].add((number, rank))
    sizes: dict[str, set[int]] = defaultdict(set)
    for name, size in (*_told_sizes(events), *_recorded_sizes(recordings)):
        sizes[name].add(size)
    return Members(
        of_group={name: dict(pairs) for name, pairs in claims.items() if _is_one_to_one(pairs)},
        sizes={name: found.pop() for name, found in sizes.items() if len(found) == 1},
    )


def _told(events: list[Said]) -> Iterator[_Pair]:
    for said in events:
        group, rank = said.record.group, said.record.rank
        if group is not None and rank is not None and not group.is_own_count:
            yield group.name, group.group_rank, rank


def _told_sizes(events: list[Said]) -> Iterator[tuple[str, int]]:
    for said in events:
        group, what = said.record.group, said.record.what
        if group is not None and not group.is_own_count and isinstance(what, GroupJoined):
            yield group.name, what.size


def _recorded(recordings: list[Sourced[Recording]]) -> Iterator[_Pair]:
    for sourced in recordings:
        for group in sourced.record.groups:
            yield from ((group.name, number, rank) for number, rank in enumerate(group.ranks))


def _recorded_sizes(recordings: list[Sourced[Recording]]) -> Iterator[tuple[str, int]]:
    return ((group.name, len(group.ranks)) for one in recordings for group in one.record.groups if group.ranks)


def _is_one_to_one(pairs: set[tuple[int, int]]) -> bool:
    return len({number for number, _ in pairs}) == len({rank for _, rank in pairs}) == len(pairs)


def _between(known: Mapping[int, int], number: int) -> int | None:
    """The rank with that number; also where it lies between two others with no choice left. No rank is below 0."""
    if number in known:
        return known[number]
    below = max((other for other in known if other < number), default=-1)
    above = min((other for other in known if other > number), default=None)
    first = known.get(below, -1)
    if above is None or known[above] - first != above - below:
        return None
    return first + number - below
