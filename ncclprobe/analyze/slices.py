"""What a set of ranks is, said exactly or not at all: one host, one slice of the job's parallelism, one local rank.

In: where ranks run, and the process groups their recorders name. Out: `Slices`; its `describe` names a set of ranks by
what all of them and nobody else have in common.

Groups are told by their descriptions: Megatron's `TENSOR_MODEL_PARALLEL_GROUP`, torch's device meshes' `mesh_tp`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from ncclprobe.analyze.case import Case
from ncclprobe.model.collectives import ProcessGroup
from ncclprobe.model.folding import fold
from ncclprobe.model.job import Rank

# In order of how much they tell; without the `mesh_` of a device mesh and the `_GROUP` of Megatron.
_TITLES = {
    "tensor_model_parallel": "tensor-parallel",
    "tp": "tensor-parallel",
    "pipeline_model_parallel": "pipeline",
    "pp": "pipeline",
    "expert_model_parallel": "expert-parallel",
    "ep": "expert-parallel",
    "data_parallel": "data-parallel",
    "data_parallel_with_cp": "data-parallel-with-CP",
    "dp": "data-parallel",
    "fsdp": "FSDP",
    "dp_shard": "dp_shard",
    "dp_replicate": "dp_replicate",
    "context_parallel": "context-parallel",
    "cp": "context-parallel",
}
_KNOWN = tuple(_TITLES)
_PIPELINE = "pipeline"
_UNDESCRIBED = ("", "undefined", "default_pg")
_MAX_HOSTS_NAMED = 3
_MAX_WHOLE_GROUPS = 8  # the union of more groups is exact too, but no longer says where to look
_MAX_NAME = 60  # characters: a description is the job's own text

_Key = TypeVar("_Key", str, int)


@dataclass(frozen=True, slots=True)
class _Axis:
    """The groups of one description. `places`: rank -> (group, number in it); empty where groups overlap."""

    title: str
    is_known: bool
    groups: tuple[tuple[int, ...], ...]
    places: dict[int, tuple[int, int]]

    @property
    def is_even(self) -> bool:
        """Whether all groups are of one size."""
        return len({len(group) for group in self.groups}) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """`expected`: all ranks. Not `is_whole`: there may be more, so nothing can be said of all ranks of a kind."""

    expected: frozenset[int]
    is_whole: bool
    hosts: dict[str, frozenset[int]] = field(default_factory=dict)
    local_ranks: dict[int, frozenset[int]] = field(default_factory=dict)
    axes: tuple[_Axis, ...] = ()

    def describe(self, ranks: Iterable[int]) -> str | None:
        """Such as `all ranks of host node3`; None for one rank, for all ranks, and where nothing is exact."""
        chosen = frozenset(ranks)
        if len(chosen) < 2 or not chosen < self.expected:
            return None
        return next(self._descriptions(chosen), None)

    def _descriptions(self, chosen: frozenset[int]) -> Iterator[str]:
        """The most telling first: a machine or three, a group, a stage, then what many machines or groups share."""
        known = [axis for axis in self.axes if axis.is_known]
        yield from self._by_host(chosen)
        for axis in known:
            yield from _one_group(axis, chosen)
            if axis.title == _PIPELINE and self._covers(axis):
                yield from _stages(axis, chosen)
        yield from self._by_local_rank(chosen)
        for axis in known:
            if axis.title != _PIPELINE and self._covers(axis):
                yield from _same_place(axis, chosen)
        yield from self._by_many_hosts(chosen)
        for axis in self.axes:
            yield from _whole_groups(axis, chosen) if axis.is_known else _one_group(axis, chosen)

    def _covers(self, axis: _Axis) -> bool:
        """Whether every rank has exactly one group on the axis; only then "every group" is known to be every one."""
        return self.is_whole and len(axis.places) == len(self.expected)

    def _by_host(self, chosen: frozenset[int]) -> Iterator[str]:
        names = self._whole_hosts(chosen)
        if 1 <= len(names) <= _MAX_HOSTS_NAMED:
            yield f"all ranks of host{'s' if len(names) > 1 else ''} {', '.join(names)}"

    def _by_many_hosts(self, chosen: frozenset[int]) -> Iterator[str]:
        names = self._whole_hosts(chosen)
        if len(names) > _MAX_HOSTS_NAMED:
            yield f"all ranks of {len(names)} hosts"

    def _whole_hosts(self, chosen: frozenset[int]) -> list[str]:
        """The hosts that the ranks fill; none where a rank is left over."""
        names = sorted(name for name, ranks in self.hosts.items() if ranks <= chosen)
        return names if sum(len(self.hosts[name]) for name in names) == len(chosen) else []

    def _by_local_rank(self, chosen: frozenset[int]) -> Iterator[str]:
        for number, ranks in self.local_ranks.items():
            if ranks == chosen and not any(chosen.isdisjoint(of_host) for of_host in self.hosts.values()):
                yield f"local rank {number} of every host"


def find_slices(case: Case) -> Slices:
    """All that can be told of this job."""
    groups = (group for sourced in case.evidence.recordings for group in sourced.record.groups)
    return build_slices(case.ranks, groups, case.expected, is_whole=case.world_size is not None)


def build_slices(
    places: Mapping[int, Rank], groups: Iterable[ProcessGroup], expected: Iterable[int], *, is_whole: bool
) -> Slices:
    """The same group may come once per member. Hosts count only where that of every expected rank is known."""
    world = frozenset(expected)
    is_placed = is_whole and all(rank in places for rank in world)
    ours = {rank: place for rank, place in places.items() if rank in world} if is_placed else {}
    return Slices(
        expected=world,
        is_whole=is_whole,
        hosts=_gathered(ours, lambda place: place.host),
        local_ranks=_gathered(ours, lambda place: place.local_rank),
        axes=tuple(_axes(groups, len(world))),
    )


def _gathered(places: Mapping[int, Rank], key: Callable[[Rank], _Key | None]) -> dict[_Key, frozenset[int]]:
    found: dict[_Key, set[int]] = defaultdict(set)
    for rank, place in places.items():
        value = key(place)
        if value is None or value == "":
            return {}
        found[value].add(rank)
    return {value: frozenset(ranks) for value, ranks in found.items()}


def _axes(groups: Iterable[ProcessGroup], world_size: int) -> Iterator[_Axis]:
    members: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    seen: set[tuple[object, ...]] = set()
    for group in groups:
        # All members of a big group name it: comparing its ends is enough, for torch numbers groups in a job.
        key = (group.name, group.description, len(group.ranks), group.ranks[:1], group.ranks[-1:])
        if key not in seen and 1 < len(group.ranks) < world_size and group.description not in _UNDESCRIBED:
            members[group.description].add(group.ranks)
        seen.add(key)
    for description in sorted(members, key=_telling):
        name = _plain(description)
        title = _TITLES.get(name, description[:_MAX_NAME])
        ordered = tuple(sorted(members[description]))
        yield _Axis(title, name in _TITLES, ordered, _places(ordered))


def _plain(description: str) -> str:
    return description.lower().removeprefix("mesh_").replace("_group", "")


def _telling(description: str) -> tuple[int, str]:
    name = _plain(description)
    return (_KNOWN.index(name) if name in _TITLES else len(_KNOWN)), description


def _places(groups: tuple[tuple[int, ...], ...]) -> dict[int, tuple[int, int]]:
    places: dict[int, tuple[int, int]] = {}
    for index, group in enumerate(groups):
        for number, rank in enumerate(group):
            if rank in places:
                return {}
            places[rank] = (index, number)
    return places


def _one_group(axis: _Axis, chosen: frozenset[int]) -> Iterator[str]:
    first = min(chosen)
    own = axis.places.get(first)
    candidates = (axis.groups[own[0]],) if own else () if axis.places else axis.groups
    if any(len(group) == len(chosen) and chosen.issuperset(group) for group in candidates):
        yield f"one {axis.title} group" if axis.is_known else f"all members of one {axis.title}"


def _stages(axis: _Axis, chosen: frozenset[int]) -> Iterator[str]:
    numbers = {axis.places[rank][1] for rank in chosen}
    if axis.is_even and len(chosen) == len(numbers) * len(axis.groups):
        noun = "stage" if len(numbers) == 1 else "stages"
        yield f"pipeline {noun} {fold(numbers)} of 0-{len(axis.groups[0]) - 1}"


def _same_place(axis: _Axis, chosen: frozenset[int]) -> Iterator[str]:
    numbers = {axis.places[rank][1] for rank in chosen}
    if len(numbers) == 1 and len(chosen) == len(axis.groups):
        number = numbers.pop()
        which = "the first rank" if number == 0 else f"group rank {number}"
        yield f"{which} of every {axis.title} group"


def _whole_groups(axis: _Axis, chosen: frozenset[int]) -> Iterator[str]:
    if not all(rank in axis.places for rank in chosen):
        return
    sizes = Counter(axis.places[rank][0] for rank in chosen)
    if 1 < len(sizes) <= _MAX_WHOLE_GROUPS and all(len(axis.groups[i]) == size for i, size in sizes.items()):
        yield f"{len(sizes)} whole {axis.title} groups"
