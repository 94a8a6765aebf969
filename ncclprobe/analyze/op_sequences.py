"""Operations that NCCL's own logs list per communicator, compared like the calls of flight-recorder dumps.

In: op traces, the ranks of processes. Out: `OpSequences`: where members of a communicator issued different operations;
whose last operations others wait for. The lines are printed when an operation is issued: nothing tells what completed.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ncclprobe.analyze.logs import Logs
from ncclprobe.analyze.match import Mismatch, find_mismatch
from ncclprobe.analyze.op_groups import P2P, OpGroup, Trace, find_op_groups
from ncclprobe.analyze.op_waits import OpRoot, UnlikeMessage, find_op_roots, find_unlike_messages
from ncclprobe.analyze.timeline import build_timelines
from ncclprobe.model.collectives import ProcessGroup, Recording, Signature
from ncclprobe.model.log import OpTrace
from ncclprobe.model.records import Sourced
from ncclprobe.model.report import Cause

_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_MIN_COMMON = 8  # calls that are alike before it, without which traces of unknown beginning tell no difference


@dataclass(frozen=True, slots=True, kw_only=True)
class OpDifference:
    """A divergence in a communicator. `cause`: as the traces tell it, which hold no lines of code but roots."""

    mismatch: Mismatch
    group: OpGroup
    cause: Cause

    @property
    def has_majority(self) -> bool:
        """Whether most members, also of those without a trace, are on one side."""
        return 2 * len(self.mismatch.sides[0].ranks) > self.group.size

    @property
    def guilty(self) -> tuple[int, ...]:
        """Those to name: the few, or both of a pair; nobody where the sides are even or most was not heard."""
        if self.has_majority:
            return self.mismatch.guilty
        return tuple(sorted(self.group.traces)) if self.group.size == len(self.group.traces) == 2 else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSequences:
    """`heard`: ranks with a trace. `roots`: who is waited for and waits for nobody."""

    differences: tuple[OpDifference, ...] = ()
    unlike: tuple[UnlikeMessage, ...] = ()
    roots: tuple[OpRoot, ...] = ()
    heard: frozenset[int] = frozenset()


def find_op_sequences(traces: Iterable[Trace], logs: Logs) -> OpSequences:
    """The same for any order of files."""
    groups = find_op_groups(traces, logs)
    differences = tuple(found for group in groups if (found := _difference(group)))
    differing = {found.group.name for found in differences}
    comparable = [group for group in groups if group.is_anchored and group.name not in differing]
    return OpSequences(
        differences=differences,
        unlike=tuple(find_unlike_messages(comparable)),
        roots=find_op_roots(comparable),
        heard=frozenset(rank for group in groups for rank in group.traces),
    )


def _difference(group: OpGroup) -> OpDifference | None:
    members = tuple(range(group.size)) if set(group.traces) <= set(range(group.size)) else tuple(sorted(group.traces))
    shared = ProcessGroup(name=f"communicator {group.name}", ranks=members)
    recordings = (_recording(rank, trace, shared, by_count=group.by_count) for rank, trace in group.traces.items())
    for timeline in build_timelines(recordings, None):
        found = find_mismatch(timeline)
        if found and (group.is_anchored or _common(found) >= _MIN_COMMON):
            return OpDifference(mismatch=found, group=group, cause=_cause(found))
    return None


def _common(found: Mismatch) -> int:
    return found.seq - max(track.first_seq for track in found.timeline.tracks.values())


def _cause(found: Mismatch) -> Cause:
    """One operation with another size or root is other data, where no sequence goes on to tell of another path."""
    ops = {side.call.signature.op.partition(" from ")[0] for side in found.sides}
    if len(ops) > 1:
        return found.cause
    if found.cause is Cause.COLLECTIVE_OP_MISMATCH:
        return Cause.COLLECTIVE_SHAPE_MISMATCH
    tracks = found.timeline.tracks
    has_ended = all(tracks[rank].last_seq == found.seq for rank in found.guilty_side.ranks)
    is_unheard_of = not any(_has_made(track.recording, track.rows, found) for track in tracks.values())
    if found.cause is Cause.COLLECTIVE_EXTRA and has_ended and is_unheard_of:
        return Cause.COLLECTIVE_SHAPE_MISMATCH
    return found.cause


def _has_made(recording: Recording, rows: "array[int]", found: Mismatch) -> bool:
    """Whether the guilty side's operation was made before, by anybody."""
    wanted = found.guilty_side.call.signature
    numbers = {number for number, signature in enumerate(recording.signatures) if signature == wanted}
    earlier = (row for row in rows if recording.seq[row] < found.seq)
    return bool(numbers) and any(recording.signature_of[row] in numbers for row in earlier)


def _recording(rank: int, trace: Trace, group: ProcessGroup, *, by_count: bool) -> Sourced[Recording]:
    record = trace.record
    rows = [row for row in range(len(record)) if record.signatures[record.signature_of[row]].op not in P2P]
    first = record.left_out + 1
    seqs = [record.op_count[row] for row in rows] if by_count else range(first, first + len(rows))
    numbers: dict[Signature, int] = {}
    signature_of = array("I", (numbers.setdefault(_with_root(record, row), len(numbers)) for row in rows))
    return Sourced(
        replace(trace.artifact, rank=rank),
        Recording(
            version="",
            library_version=None,
            groups=(group,),
            signatures=tuple(numbers),
            stacks=((),),
            backends=("nccl",),
            group_of=array("H", [0] * len(rows)),
            signature_of=signature_of,
            stack_of=array("I", [0] * len(rows)),
            seq=array("q", seqs),
            created_ns=array("q", [0] * len(rows)),
            timeout_ms=array("q", [-1] * len(rows)),
            is_completed=bytearray([1] * len(rows)),
            is_p2p=bytearray(len(rows)),
        ),
    )


def _with_root(record: OpTrace, row: int) -> Signature:
    """Of an operation with a root its number is part of what must agree; NCCL's own all-to-all has equal shares."""
    signature = record.signatures[record.signature_of[row]]
    if signature.op == "all_to_all":
        return replace(signature, op=f"{signature.op} from all")
    return replace(signature, op=f"{signature.op} from {record.root[row]}") if signature.op in _ROOTED else signature
