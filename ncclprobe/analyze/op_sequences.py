"""Operations that NCCL's own logs list per communicator, compared like the calls of flight-recorder dumps.

In: op traces, the ranks of processes. Out: `OpSequences`: where members of a communicator issued different operations;
sends without a recv, and the reverse. The lines are printed when an operation is issued: nothing tells what completed.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from ncclprobe.analyze.logs import Logs
from ncclprobe.analyze.match import Mismatch, find_mismatch
from ncclprobe.analyze.timeline import build_timelines
from ncclprobe.model.collectives import ProcessGroup, Recording
from ncclprobe.model.log import OpTrace
from ncclprobe.model.records import Sourced

Trace = Sourced[OpTrace]
_P2P = ("send", "recv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaired:
    """A direction of a pair in which one end issued `count` more than the other; `owing` has to make up for them."""

    owing: int
    other: int
    missing: str
    count: int
    group: str
    of_owing: Trace
    of_other: Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSequences:
    """`heard`: ranks with a trace. `is_whole`: every member of the communicators that differ has one."""

    mismatches: tuple[Mismatch, ...] = ()
    unpaired: tuple[Unpaired, ...] = ()
    heard: frozenset[int] = frozenset()


def find_op_sequences(traces: Iterable[Trace], logs: Logs) -> OpSequences:
    """The same for any order of files."""
    by_comm: dict[tuple[str, int], dict[int, Trace]] = defaultdict(dict)
    for trace in sorted(traces, key=lambda trace: (trace.artifact.path, trace.record.pid, trace.record.comm)):
        record = trace.record
        rank = _rank_of(record, logs)
        if rank is not None and record.size is not None:
            by_comm[record.comm_id or f"of {record.size} ranks", record.size][rank] = trace
    mismatches: list[Mismatch] = []
    unpaired: list[Unpaired] = []
    for (name, size), of_rank in sorted(by_comm.items()):
        mismatches += _mismatches(name, size, of_rank)
        unpaired += _unpaired(name, of_rank)
    heard = frozenset(rank for of_rank in by_comm.values() for rank in of_rank)
    return OpSequences(mismatches=tuple(mismatches), unpaired=tuple(unpaired), heard=heard)


def _rank_of(trace: OpTrace, logs: Logs) -> int | None:
    """Global where the process is known; of a communicator as large as the job the member's number is the rank."""
    rank = logs.rank_with(trace.host, trace.pid)
    return rank if rank is not None else (trace.rank if trace.size == logs.world_size else None)


def _mismatches(name: str, size: int, of_rank: dict[int, Trace]) -> Iterator[Mismatch]:
    members = tuple(range(size)) if set(of_rank) <= set(range(size)) else tuple(sorted(of_rank))
    group = ProcessGroup(name=f"communicator {name}", ranks=members)
    by_count = all(_is_counted(trace.record) for trace in of_rank.values())
    recordings = tuple(_recording(rank, trace, group, by_count=by_count) for rank, trace in sorted(of_rank.items()))
    for timeline in build_timelines(recordings, None):
        found = find_mismatch(timeline)
        if found:
            yield found


def _is_counted(trace: OpTrace) -> bool:
    """Whether `opCount` moved with every line: then it tells where logs that begin late stand to each other."""
    counts = list(trace.op_count)
    return len(counts) > 1 and all(later == earlier + 1 for earlier, later in pairwise(counts))


def _recording(rank: int, trace: Trace, group: ProcessGroup, *, by_count: bool) -> Sourced[Recording]:
    record = trace.record
    rows = [row for row in range(len(record)) if record.signatures[record.signature_of[row]].op not in _P2P]
    seqs = [record.op_count[row] for row in rows] if by_count else range(1, len(rows) + 1)
    return Sourced(
        replace(trace.artifact, rank=rank),
        Recording(
            version="",
            library_version=None,
            groups=(group,),
            signatures=record.signatures,
            stacks=((),),
            backends=("nccl",),
            group_of=array("H", [0] * len(rows)),
            signature_of=array("I", [record.signature_of[row] for row in rows]),
            stack_of=array("I", [0] * len(rows)),
            seq=array("q", seqs),
            created_ns=array("q", [0] * len(rows)),
            timeout_ms=array("q", [-1] * len(rows)),
            is_completed=bytearray([1] * len(rows)),
            is_p2p=bytearray(len(rows)),
        ),
    )


def _unpaired(name: str, of_rank: dict[int, Trace]) -> Iterator[Unpaired]:
    """For each pair that was heard: sends of one end against recvs of the other."""
    issued = {rank: _p2p_counts(trace.record) for rank, trace in of_rank.items()}
    number = {trace.record.rank: rank for rank, trace in of_rank.items()}
    for rank, counts in sorted(issued.items()):
        for (op, peer), count in sorted(counts.items()):
            other = number.get(peer)
            mine = of_rank[rank].record.rank
            if op != "send" or other is None or mine is None:
                continue
            received = issued[other].get(("recv", mine), 0)
            yield from _difference(name, of_rank, (rank, count), (other, received))
        for (op, peer), count in sorted(counts.items()):
            other, mine = number.get(peer), of_rank[rank].record.rank
            if op == "recv" and other is not None and mine is not None and ("send", mine) not in issued[other]:
                yield from _difference(name, of_rank, (other, 0), (rank, count))


def _p2p_counts(trace: OpTrace) -> Counter[tuple[str, int]]:
    rows = ((trace.signatures[trace.signature_of[row]].op, trace.root[row]) for row in range(len(trace)))
    return Counter((op, peer) for op, peer in rows if op in _P2P)


def _difference(
    name: str, of_rank: dict[int, Trace], sender: tuple[int, int], receiver: tuple[int, int]
) -> Iterator[Unpaired]:
    (source, sent), (target, received) = sender, receiver
    if sent == received:
        return
    owing, other, missing = (source, target, "send") if sent < received else (target, source, "recv")
    yield Unpaired(
        owing=owing,
        other=other,
        missing=missing,
        count=abs(sent - received),
        group=name,
        of_owing=of_rank[owing],
        of_other=of_rank[other],
    )
