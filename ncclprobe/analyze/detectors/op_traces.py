"""NCCL's own logs list other operations on some members of a communicator than on the rest.

In: op sequences. Out: a finding for the first communicator whose members differ, and for a send or recv without its
other end. What flight-recorder dumps show is not told again from logs.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.match import Mismatch
from ncclprobe.analyze.op_sequences import Unpaired
from ncclprobe.analyze.sides import Side
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import BlockedOn, Cause, Confidence, Finding

_FIX = "Make all ranks issue the same operations in the same order; the stacks tell from which lines."


def detect(case: Case) -> Iterator[Finding]:
    """At most one finding."""
    if case.mismatches or case.waits.roots:
        return
    for mismatch in case.ops.mismatches[:1]:
        yield _different(mismatch)
        return
    for unpaired in case.ops.unpaired[:1]:
        yield _unpaired(case, unpaired)


def _different(mismatch: Mismatch) -> Finding:
    guilty, other = mismatch.guilty_side, mismatch.other_side
    group = mismatch.timeline.group.label
    is_whole = not mismatch.timeline.silent
    # Where most of the group was heard and agrees the few are named; two logs alone show a difference, not its maker.
    named = mismatch.guilty if mismatch.has_majority else ()
    return Finding(
        cause=mismatch.cause,
        summary=(
            f"{name_ranks(guilty.ranks).capitalize()} issued {guilty.call.signature} as operation {mismatch.seq} of "
            f"{group}, where {name_ranks(other.ranks)} issued {other.call.signature}."
        )[:200],
        guilty_ranks=named,
        confidence=Confidence.PROBABLE if is_whole and named else Confidence.POSSIBLE,
        victims=tuple(rank for rank in mismatch.timeline.members if rank not in mismatch.guilty),
        blocked_on=BlockedOn(group=group, seq=mismatch.seq, op=other.call.signature.op),
        evidence=(_cite(mismatch, guilty), _cite(mismatch, other)),
        next_steps=(f"look at the stacks of {name_ranks(guilty.ranks)}: they show the line that issued it",),
        fix=_FIX,
    )


def _cite(mismatch: Mismatch, side: Side) -> Citation:
    artifact = mismatch.timeline.tracks[side.ranks[0]].artifact
    says = f"{name_ranks(side.ranks)} issued it as operation {mismatch.seq}"
    return cite(artifact, f"operation {mismatch.seq}", str(side.call.signature), says)


def _unpaired(case: Case, found: Unpaired) -> Finding:
    line = found.of_other.record.line[-1] if len(found.of_other.record) else 0
    other = "recv" if found.missing == "send" else "send"
    position = case.positions.get(found.owing)
    frame = position.user_frame if position else None
    return Finding(
        cause=Cause.P2P_MISMATCH,
        summary=(
            f"Rank {found.owing} owes {found.count} {found.missing} to rank {found.other}, which waits in the matching "
            f"{other}."
        )[:200],
        guilty_ranks=(found.owing,),
        confidence=Confidence.PROBABLE,
        victims=tuple(rank for rank in case.expected if rank != found.owing),
        blocked_on=BlockedOn(group=f"communicator {found.group}", seq=None, op=other),
        where=(case.locate(found.owing, frame),) if frame else (),
        evidence=(
            cite(found.of_other.artifact, f"line {line}", f"{found.count} {other} more", f"rank {found.other} issued"),
            cite(found.of_owing.artifact, "all lines", f"{found.count} {found.missing} less", f"rank {found.owing}"),
        ),
        next_steps=(f"compare the last batch of sends and recvs of ranks {found.owing} and {found.other}",),
        fix="Post both ends of every send and recv in the same batch, in the same order on both ranks.",
    )


DETECTOR = Detector(
    causes=(
        Cause.COLLECTIVE_OP_MISMATCH,
        Cause.COLLECTIVE_SHAPE_MISMATCH,
        Cause.COLLECTIVE_EXTRA,
        Cause.COLLECTIVE_SKIPPED,
        Cause.COLLECTIVE_DESYNC,
        Cause.P2P_MISMATCH,
    ),
    detect=detect,
)
