"""Which operations that NCCL's logs list belong together: the traces of the members of one communicator.

In: op traces, the communicators that the logs show, the ranks of processes. Out: `OpGroup`s.

Traces can be compared by number only where it is known how many operations came before the first line: the log holds
the communicator's Init line, or `opCount` moved with every line of every member. Then the group is anchored.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from ncclprobe.analyze.communicators import Communicator, communicator_of, communicators
from ncclprobe.analyze.logs import Logs
from ncclprobe.model.log import CommEvent, OpTrace
from ncclprobe.model.records import Sourced

Trace = Sourced[OpTrace]
P2P = ("send", "recv")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpGroup:
    """`traces` by global rank, and each one's `numbers`, its rank in the communicator of `size`.

    `by_count`: their lines are numbered by `opCount`. `is_anchored`: the numbers of lines compare between members.
    `idle`: members whose log shows that they joined, and no operation.
    """

    name: str
    size: int
    traces: dict[int, Trace]
    numbers: dict[int, int]
    by_count: bool
    is_anchored: bool
    idle: tuple[int, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every member has a trace."""
        return len(self.traces) == self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    group: tuple[str, int]
    rank: int
    number: int | None
    trace: Trace
    begins_with_init: bool


def find_op_groups(traces: Iterable[Trace], logs: Logs) -> tuple[OpGroup, ...]:
    """In order of name; the same for any order of files. A process whose rank nothing tells is left out."""
    found = communicators((said.record for said in logs.of(CommEvent)), logs.world_size)
    ordinals: dict[tuple[str, int, int], int] = defaultdict(int)
    groups: dict[tuple[str, int], list[_Member]] = defaultdict(list)
    for trace in sorted(traces, key=_place):
        member = _member(trace, communicator_of(trace.record, found), logs, ordinals)
        if member is not None:
            groups[member.group].append(member)
    by_name = {comm.id: comm for comm in found}
    return tuple(_group(key, members, _joined(by_name.get(key[0]), logs)) for key, members in sorted(groups.items()))


def _joined(comm: Communicator | None, logs: Logs) -> set[int]:
    """Global ranks that completed the communicator's start."""
    if comm is None:
        return set()
    done = (member for number, member in comm.members.items() if number in comm.completed)
    ranks = {logs.rank_with(member.host, member.pid) for member in done}
    return {rank for rank in ranks if rank is not None}


def _place(trace: Trace) -> tuple[str, int, int, str]:
    record = trace.record
    return trace.artifact.path, record.pid, record.line[0] if len(record) else 0, record.comm


def _member(
    trace: Trace, comm: Communicator | None, logs: Logs, ordinals: dict[tuple[str, int, int], int]
) -> _Member | None:
    """Members of a communicator whose Init lines nobody kept are told by its size, and which of that size it is."""
    record = trace.record
    size = comm.size if comm else record.size
    number = _number(record, comm)
    rank = logs.rank_with(record.host, record.pid)
    if rank is None:
        rank = trace.artifact.rank if trace.artifact.rank is not None or size != logs.world_size else number
    if rank is None or size is None:
        return None
    name = comm.id if comm else record.comm_id
    if name is None:
        key = record.host, record.pid, size
        name = f"number {ordinals[key]} of {size} ranks"
        ordinals[key] += 1
    return _Member(group=(name, size), rank=rank, number=number, trace=trace, begins_with_init=comm is not None)


def _number(record: OpTrace, comm: Communicator | None) -> int | None:
    if record.rank is not None or comm is None:
        return record.rank
    places = (n for n, m in comm.members.items() if (m.host, m.pid, m.comm) == (record.host, record.pid, record.comm))
    return next(places, None)


def _group(key: tuple[str, int], members: list[_Member], joined: set[int]) -> OpGroup:
    name, size = key
    by_count = all(_is_counted(member.trace.record) for member in members)
    return OpGroup(
        name=name,
        size=size,
        traces={member.rank: member.trace for member in sorted(members, key=lambda member: member.rank)},
        numbers={member.rank: member.number for member in members if member.number is not None},
        by_count=by_count,
        idle=tuple(sorted(joined.difference(member.rank for member in members))),
        is_anchored=by_count or all(member.begins_with_init and _is_numbered(member) for member in members),
    )


def _is_counted(trace: OpTrace) -> bool:
    counts = list(trace.op_count)
    return len(counts) > 1 and all(later == earlier + 1 for earlier, later in pairwise(counts))


def _is_numbered(member: _Member) -> bool:
    """Of what was left out only the sum is known, not how many were sends and recvs."""
    trace = member.trace.record
    return not trace.left_out or not any(signature.op in P2P for signature in trace.signatures)
