"""Whose stacks are whose: which rank a dump is of, and whether it is the rank itself or a child.

In: stack dumps, and the processes where they are known. Out: `Owned` dumps; those of nobody known are left out.

What a collection wrote down counts first, then a launcher's label before the lines, then the file's name, the pid,
the process's title, and last the local rank where most of the job was seen on one host. A pid is known from the
processes that were seen, or from logs and RAS, which print it beside a rank.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ncclprobe.model.job import Rank
from ncclprobe.model.records import Sourced
from ncclprobe.model.stacks import StackDump

Process = tuple[str, int]
_NUMBER = re.compile(r"\d{1,9}")
_CHILD_NAME = re.compile(r"(?:worker|child|subproc\w*)[_.\-]?(?:pid)?[_.\-]?\d", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Owned:
    """A dump of `rank`, or of a child of it."""

    rank: int
    is_child: bool
    sourced: Sourced[StackDump]


def find_owners(
    stacks: Iterable[Sourced[StackDump]],
    ranks: dict[int, Rank],
    told: Mapping[Process, int] | None = None,
    world_size: int | None = None,
) -> tuple[Owned, ...]:
    """By look, then by path; dumps without a main thread, and those of launchers, tell nothing of ranks.

    `told`: the ranks of processes, by host and pid, as logs tell them.
    """
    ordered = sorted(stacks, key=lambda sourced: (sourced.artifact.look or 0, sourced.artifact.path))
    useful = [sourced for sourced in ordered if sourced.record.main and not sourced.record.is_launcher]
    owners = _Owners(useful, ranks, told or {}, world_size)
    found = ((sourced, owners.rank(sourced)) for sourced in useful)
    return tuple(Owned(rank, owners.is_child(sourced), sourced) for sourced, rank in found if rank is not None)


class _Owners:
    def __init__(
        self,
        stacks: Sequence[Sourced[StackDump]],
        ranks: dict[int, Rank],
        told: Mapping[Process, int],
        world_size: int | None,
    ) -> None:
        self._children = {(rank.host, pid) for rank in ranks.values() for pid in rank.children}
        self._told = told
        self._of_pid = _ranks_of_pids(told) | _ranks_of_pids({(r.host, r.pid): n for n, r in ranks.items() if r.pid})
        own = [sourced for sourced in stacks if not self.is_child(sourced)]
        self._in_file = _processes_in_files(own)
        self._of_place = _ranks_of_places(own)
        self._of_local_rank = _ranks_of_local_ranks(own, world_size)
        self._parents: dict[tuple[str, int | None], int | None] = {
            (s.artifact.path, s.record.pid): self._own_rank(s) for s in own if s.record.pid is not None
        }

    def is_child(self, sourced: Sourced[StackDump]) -> bool:
        """Whether it is no rank itself, but started by one."""
        artifact, dump = sourced.artifact, sourced.record
        is_known = (artifact.host, artifact.pid) in self._children
        is_named = not artifact.host and _CHILD_NAME.search(artifact.path.rpartition("/")[2]) is not None
        return is_known or is_named or dump.is_worker or dump.parent_pid is not None

    def rank(self, sourced: Sourced[StackDump]) -> int | None:
        """The rank of the process, or of the one that started it; None when nothing tells."""
        parent = self._parents.get((sourced.artifact.path, sourced.record.parent_pid))
        return self._own_rank(sourced) if parent is None else parent

    def _own_rank(self, sourced: Sourced[StackDump]) -> int | None:
        artifact, dump = sourced.artifact, sourced.record
        if artifact.host or artifact.pid is not None:
            return artifact.rank
        if dump.rank is not None:
            return dump.rank
        is_alone = self._in_file.get(artifact.path, 1) == 1 or dump.is_worker
        if artifact.rank is not None and artifact.rank not in (dump.pid, *self._of_pid) and is_alone:
            return artifact.rank
        if (by_pid := self._by_pid(sourced)) is not None:
            return by_pid
        if (place := _place(dump)) in self._of_place:
            return self._of_place[place]
        return self._of_local_rank.get(dump.local_rank)

    def _by_pid(self, sourced: Sourced[StackDump]) -> int | None:
        """By the pid and the host of its label; where the text names no process, by a pid in the file's name."""
        dump = sourced.record
        if dump.pid is None:
            numbers = {int(number) for number in _NUMBER.findall(sourced.artifact.path.rpartition("/")[2])}
            named = [self._of_pid[number] for number in numbers if number in self._of_pid]
            return named[0] if len(named) == 1 and self._in_file.get(sourced.artifact.path) == 1 else None
        if dump.host and (dump.host, dump.pid) in self._told:
            return self._told[dump.host, dump.pid]
        return self._of_pid.get(dump.pid)


def _ranks_of_pids(told: Mapping[Process, int]) -> dict[int, int]:
    """A pid that two hosts have tells nothing of a file without a host."""
    count = Counter(pid for _, pid in told)
    return {pid: rank for (_, pid), rank in told.items() if count[pid] == 1}


def _processes_in_files(own: Sequence[Sourced[StackDump]]) -> Counter[str]:
    """How many processes a file speaks of: its name tells the rank of one only. Several looks at one count once."""
    seen = {(sourced.artifact.path, sourced.record.pid, sourced.record.rank) for sourced in own}
    return Counter(path for path, *_ in seen)


def _place(dump: StackDump) -> tuple[int, int]:
    places = dump.coordinates
    return places.get("PP", 0), places.get("TP", -1)


def _ranks_of_places(own: Sequence[Sourced[StackDump]]) -> dict[tuple[int, int], int]:
    """From titles such as `scheduler_PP1_TP0`: TP counts fastest, and its size shows only when all places do."""
    titled = [sourced.record for sourced in own if "TP" in sourced.record.coordinates]
    places = {_place(dump) for dump in titled}
    tensor_size = 1 + max((tensor for _, tensor in places), default=0)
    stages = 1 + max((stage for stage, _ in places), default=0)
    if len(places) == tensor_size * stages and all(dump.rank_hint is not None or _place(dump)[0] for dump in titled):
        return {(stage, tensor): stage * tensor_size + tensor for stage, tensor in places}
    return {_place(dump): dump.rank_hint for dump in titled if dump.rank_hint is not None}


def _ranks_of_local_ranks(own: Sequence[Sourced[StackDump]], world_size: int | None) -> dict[int | None, int]:
    """Local ranks are global ones on one host; two dumps of one local rank in one file are of two hosts.

    Where half of the job or more was not seen it runs on other hosts too, and this may be any of them.
    """
    seen = Counter((s.artifact.path, s.record.local_rank, s.record.pid) for s in own if s.record.local_rank is not None)
    local = [number for _, number, _ in seen]
    is_one_host = len({sourced.record.host for sourced in own}) == 1 and len(local) == len(set(local))
    if not is_one_host or (world_size is not None and 2 * len(local) <= world_size):
        return {}
    return {number: number for number in local if number is not None}
