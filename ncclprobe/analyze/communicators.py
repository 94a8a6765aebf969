"""NCCL's communicators over all processes, and which global rank each process is.

In: events of debug logs, those of a process in order. Out: `Communicator`s, each joined from what its members printed;
the rank of each process.

Members of a communicator print the same commId. From NCCL 2.23 on those of a split print none; they are joined by
their parent, the number of the split and their colour. Before 2.16 nobody prints any: then the first communicators of
one size in each process are one if no two processes claim the same rank of it, and else are left apart.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ncclprobe.model.generations import Generations
from ncclprobe.model.log import CommEvent, LogEvent, OpTrace

Process = tuple[str, int]
"""Host and pid, as NCCL prints them: the pid is that inside the container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A process in a communicator. `comm` is the pointer, `rank` the global rank where the world communicator tells."""

    host: str
    pid: int
    comm: str
    cuda_device: int | None = None
    bus_id: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """`members` by rank in the communicator, those whose log was read; `id` as in RAS where it begins with `0x`.

    `started` and the others hold ranks in the communicator: whose log shows that step. A missing line of destruction
    proves nothing since NCCL 2.30.3, which does not print them unless asked. `parent`: the id of the communicator that
    it is the `split`-th split of.
    """

    id: str
    size: int
    members: dict[int, Member]
    parent: str | None = None
    split: int | None = None
    started: frozenset[int] = frozenset()
    completed: frozenset[int] = frozenset()
    aborted: frozenset[int] = frozenset()
    destroyed: frozenset[int] = frozenset()

    @property
    def unseen(self) -> tuple[int, ...]:
        """Ranks of which no log shows that they ever entered it."""
        return tuple(rank for rank in range(min(self.size, _MAX_SIZE)) if rank not in self.members)


_MAX_SIZE = 1_000_000
_MAX_NAME = 500
_STEPS = {
    "init-start": "started",
    "init-complete": "completed",
    "abort-start": "aborted",
    "abort-complete": "aborted",
    "revoke": "aborted",
    "destroy-complete": "destroyed",
}


def ranks_by_process(events: Iterable[LogEvent], world_size: int | None = None) -> dict[Process, int]:
    """The global rank of each process: its rank in the world communicator, the largest there is.

    Nothing where the largest are several, each of other GPUs, for these are then groups of a larger world; several of
    the same GPUs are a job that was started again. Nothing either where the largest is not of `world_size`, if that is
    known: a job may well make smaller communicators alone.
    """
    return _ranks(_joined(events), world_size)


def communicators(events: Iterable[LogEvent], world_size: int | None = None) -> tuple[Communicator, ...]:
    """All communicators, in order of first mention, with the global ranks of their members."""
    joined = _joined(events)
    ranks = _ranks(joined, world_size)
    return tuple(
        replace(
            one,
            members={
                number: replace(member, rank=ranks.get((member.host, member.pid)))
                for number, member in one.members.items()
            },
        )
        for one in joined
    )


def communicator_of(trace: OpTrace, found: Iterable[Communicator]) -> Communicator | None:
    """The communicator that a trace is of; of several that had its address the last with its rank and size."""
    last = None
    for one in found:
        for number, member in one.members.items():
            is_same = (member.host, member.pid, member.comm) == (trace.host, trace.pid, trace.comm)
            if is_same and trace.rank in (None, number) and trace.size in (None, one.size):
                last = one
    return last


@dataclass(slots=True)
class _Local:
    """A communicator as one process knows it."""

    first: CommEvent
    host: str
    pid: int
    generation: int
    parent: "_Local | None" = None
    split: int | None = None
    steps: set[str] = field(default_factory=set)
    comm_id: str | None = None
    name: str | None = None


def _joined(events: Iterable[LogEvent]) -> tuple[Communicator, ...]:
    groups: dict[str, list[_Local]] = {}
    anonymous: dict[tuple[int, int], list[_Local]] = {}
    ordinals: dict[tuple[Process, int], int] = {}
    for local in _locals(events):
        local.name = _name(local)
        if local.name is not None:
            groups.setdefault(local.name, []).append(local)
            continue
        process = ((local.host, local.pid), local.first.size)
        ordinals[process] = ordinals.get(process, -1) + 1
        anonymous.setdefault((local.first.size, ordinals[process]), []).append(local)
    for (size, number), alike in anonymous.items():
        for name, members in _apart(f"size {size} number {number}", alike):
            groups[name] = members
    return tuple(_communicator(name, members) for name, members in groups.items())


def _locals(events: Iterable[LogEvent]) -> list[_Local]:
    generations = Generations()
    known: dict[tuple[str, int, str, int], _Local] = {}
    splits: dict[int, int] = {}
    for event, what in _of_communicators(events):
        host, pid = event.host or "", event.pid or 0
        generation = generations.of(host, pid, what)
        key = (host, pid, what.comm, generation)
        local = known.get(key)
        if local is None:
            local = known[key] = _Local(first=what, host=host, pid=pid, generation=generation)
            if what.parent is not None:
                local.parent = known.get((host, pid, what.parent, generations.current(host, pid, what.parent)))
                local.split = _split(what, local.parent, splits)
        local.steps.add(_STEPS.get(what.event, ""))
        local.comm_id = local.comm_id or what.comm_id
    return list(known.values())


def _of_communicators(events: Iterable[LogEvent]) -> Iterator[tuple[LogEvent, CommEvent]]:
    for event in events:
        if isinstance(event.what, CommEvent):
            yield event, event.what


def _split(what: CommEvent, parent: _Local | None, splits: dict[int, int]) -> int | None:
    """2.23 prints no number: then the splits of the parent are counted."""
    if what.split is not None or parent is None:
        return what.split
    splits[id(parent)] = splits.get(id(parent), 0) + 1
    return splits[id(parent)]


def _name(local: _Local) -> str | None:
    """The same for all members; None where NCCL prints nothing that is. Parents come before their children."""
    if local.comm_id is not None:
        return local.comm_id
    if local.first.parent is None:
        return None
    parent = local.parent.name if local.parent else None
    name = f"{parent} split {local.split} color {local.first.color}"
    return name if parent and len(name) < _MAX_NAME else _alone(local)


def _alone(local: _Local) -> str:
    return f"{local.first.comm} number {local.generation} of {local.host} process {local.pid}"


def _apart(name: str, alike: list[_Local]) -> list[tuple[str, list[_Local]]]:
    """As one if no rank is claimed twice."""
    if len({local.first.rank for local in alike}) == len(alike):
        return [(name, alike)]
    return [(_alone(local), [local]) for local in alike]


def _communicator(name: str, members: list[_Local]) -> Communicator:
    steps = {step: frozenset(one.first.rank for one in members if step in one.steps) for step in set(_STEPS.values())}
    return Communicator(
        id=name,
        size=max(one.first.size for one in members),
        members={one.first.rank: _member(one) for one in members},
        parent=members[0].parent.name if members[0].parent else None,
        split=members[0].split,
        **steps,
    )


def _member(local: _Local) -> Member:
    first = local.first
    return Member(host=local.host, pid=local.pid, comm=first.comm, cuda_device=first.cuda_device, bus_id=first.bus_id)


def _ranks(found: tuple[Communicator, ...], world_size: int | None) -> dict[Process, int]:
    largest = max((one.size for one in found), default=0)
    worlds = [one for one in found if one.size == largest]
    if world_size not in (None, largest) or not _is_one_world(worlds):
        return {}
    return {(member.host, member.pid): number for one in worlds for number, member in one.members.items()}


def _is_one_world(worlds: list[Communicator]) -> bool:
    """Whether each rank is at one place, and each place is one rank, in all of them."""
    place_of: dict[int, tuple[object, ...]] = {}
    rank_at: dict[tuple[object, ...], int] = {}
    for world in worlds:
        for number, member in world.members.items():
            place = _place(member)
            if place_of.setdefault(number, place) != place or rank_at.setdefault(place, number) != number:
                return False
    return True


def _place(member: Member) -> tuple[object, ...]:
    device = member.bus_id if member.bus_id is not None else member.cuda_device
    return (member.host, device if device is not None else member.pid)
