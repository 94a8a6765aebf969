"""NCCL's own logs list other operations on some members of a communicator than on the rest, or fewer.

In: op sequences. Out: a finding for the first communicator whose members differ; for a message whose ends differ; else
for ranks whose missing operation others wait for. What flight-recorder dumps show is not told again from logs.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.op_groups import Trace
from ncclprobe.analyze.op_sequences import OpDifference
from ncclprobe.analyze.op_waits import Debt, OpRoot, UnlikeMessage
from ncclprobe.analyze.outside import outside_of_waits
from ncclprobe.analyze.sides import Side
from ncclprobe.analyze.whereabouts import find_whereabouts
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import WorkTimeout
from ncclprobe.model.report import BlockedOn, Cause, CodeLocation, Confidence, Finding

_FIX = "Make all ranks issue the same operations in the same order; the stacks tell from which lines."
_PAIR_FIX = "Post both ends of every send and recv in the same batch, in the same order on both ranks."
_LATE_FIX = "See what that rank does instead: its stack and its log say why it did not come."
_RING_FIX = "Let all ranks use their communicators in the same order."
_MAX_RING = 8


def detect(case: Case) -> Iterator[Finding]:
    """At most one kind of finding: a divergence explains the waits that follow from it."""
    ops = case.ops
    if case.mismatches or case.waits.roots:
        return
    if ops.differences:
        yield _different(ops.differences[0])
    elif ops.unlike:
        yield _unlike(case, ops.unlike[0])
    else:
        yield from _roots(case, ops.roots)


def _different(found: OpDifference) -> Finding:
    mismatch = found.mismatch
    guilty, other = mismatch.guilty_side, mismatch.other_side
    group = mismatch.timeline.group.label
    return Finding(
        cause=found.cause,
        summary=(
            f"{name_ranks(guilty.ranks).capitalize()} issued {guilty.call.signature} as operation {mismatch.seq} of "
            f"{group}, where {name_ranks(other.ranks)} issued {other.call.signature}."
        )[:200],
        guilty_ranks=found.guilty,
        suspects=() if found.guilty else mismatch.guilty,
        confidence=Confidence.PROBABLE if found.group.is_whole and found.guilty else Confidence.POSSIBLE,
        victims=tuple(rank for rank in mismatch.timeline.members if rank not in mismatch.guilty),
        blocked_on=BlockedOn(group=group, seq=mismatch.seq, op=other.call.signature.op),
        evidence=(_cite_side(found, guilty), _cite_side(found, other)),
        next_steps=(f"look at the stacks of {name_ranks(guilty.ranks)}: they show the line that issued it",),
        fix=_FIX,
    )


def _cite_side(found: OpDifference, side: Side) -> Citation:
    seq = found.mismatch.seq
    artifact = found.mismatch.timeline.tracks[side.ranks[0]].artifact
    says = f"{name_ranks(side.ranks)} issued it as operation {seq}"
    return cite(artifact, f"operation {seq}", str(side.call.signature), says)


def _unlike(case: Case, found: UnlikeMessage) -> Finding:
    ends = tuple(sorted((found.source, found.target)))
    return Finding(
        cause=Cause.P2P_MISMATCH,
        summary=(
            f"Rank {found.source} sends {found.sent} as message {found.number} to rank {found.target}, "
            f"which expects {found.received}."
        )[:200],
        guilty_ranks=ends,
        confidence=Confidence.PROBABLE,
        victims=tuple(rank for rank in case.expected if rank not in ends),
        blocked_on=BlockedOn(group=f"communicator {found.group}", seq=None, op="recv"),
        evidence=(
            cite(found.of_source.artifact, f"send {found.number}", str(found.sent), f"rank {found.source} sends it"),
            cite(found.of_target.artifact, f"recv {found.number}", str(found.received), f"rank {found.target} expects"),
        ),
        next_steps=(f"compare the sizes that ranks {ends[0]} and {ends[1]} compute for this message",),
        fix="Give both ends the same size and type: agree on it before the message, or send it ahead.",
    )


def _roots(case: Case, roots: tuple[OpRoot, ...]) -> Iterator[Finding]:
    """A ring by itself; ranks that wait for nobody together: what they have in common is why they are late."""
    rings = [root for root in roots if root.is_ring]
    if rings:
        yield _ring(case, rings[0])
        return
    owing = [root for root in roots if root.debts]
    late = [root for root in roots if not root.debts]
    if owing:
        yield _owing(case, owing)
    elif late:
        yield _late(case, late)


def _ring(case: Case, root: OpRoot) -> Finding:
    is_of_messages = not root.lags
    is_small = len(root.ranks) <= _MAX_RING
    names = sorted({lag.group.name for lag in root.lags} | {debt.group for debt in root.debts})
    return Finding(
        cause=Cause.P2P_MISMATCH if is_of_messages else Cause.GROUP_ORDER_DEADLOCK,
        summary=f"{name_ranks(root.ranks).capitalize()} wait for one another, in communicators {', '.join(names)}."[
            :200
        ],
        guilty_ranks=root.ranks if is_small else (),
        suspects=() if is_small else root.ranks,
        confidence=_confidence(case, root.ranks),
        victims=tuple(rank for rank in case.expected if rank not in root.ranks),
        blocked_on=_blocked_on(root),
        where=_places(case, root.ranks),
        evidence=tuple(_citations(root)),
        next_steps=(f"compare the order of the calls on {name_ranks(root.ranks)}: their stacks show the lines",),
        fix=_PAIR_FIX if is_of_messages else _RING_FIX,
    )


def _owing(case: Case, roots: list[OpRoot]) -> Finding:
    ranks = tuple(sorted(rank for root in roots for rank in root.ranks))
    debt = roots[0].debts[0]
    is_clear = len(ranks) == 1
    other = "recv" if debt.missing == "send" else "send"
    return Finding(
        cause=Cause.P2P_MISMATCH,
        summary=(
            f"{name_ranks(ranks).capitalize()} {'owes' if is_clear else 'owe'} {debt.count} {debt.missing} to rank "
            f"{debt.other}, which waits in the matching {other}."
        )[:200],
        guilty_ranks=ranks if is_clear else (),
        suspects=() if is_clear else ranks,
        confidence=_confidence(case, ranks),
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        blocked_on=_blocked_on(roots[0]),
        where=_places(case, ranks),
        evidence=tuple(_citations(roots[0])),
        next_steps=(f"compare the last batch of sends and recvs of ranks {debt.owing} and {debt.other}",),
        fix=_PAIR_FIX,
    )


def _late(case: Case, roots: list[OpRoot]) -> Finding:
    """A log is a snapshot too: something else must show that the ranks do not come, and what they do."""
    ranks = outside_of_waits(case, tuple(sorted(rank for root in roots for rank in root.ranks)))
    where = find_whereabouts(case, ranks)
    lag = roots[0].lags[0]
    timed_out = {said.record.rank for said in case.logs.of(WorkTimeout)}
    is_waited_for = bool(timed_out) and not timed_out & set(ranks)
    is_few = 2 * len(ranks) < len(case.ops.heard)
    is_named = is_few and (where.shown_by is not None or is_waited_for)
    return Finding(
        cause=Cause.COLLECTIVE_DESYNC if where.cause is Cause.COLLECTIVE_SKIPPED else where.cause,
        summary=(
            f"{name_ranks(ranks).capitalize()} issued {lag.count} operations of communicator {lag.group.name}, others "
            f"{lag.furthest}: {where.doing}."
        )[:200],
        guilty_ranks=ranks if is_named else (),
        suspects=() if is_named else ranks,
        confidence=Confidence.PROBABLE if is_named else Confidence.POSSIBLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        blocked_on=_blocked_on(roots[0]),
        where=where.places,
        evidence=(*_citations(roots[0]), *where.citations),
        next_steps=(f"look at the stacks of {name_ranks(ranks)}: py-spy dump --pid PID on their hosts",),
        fix=_LATE_FIX,
    )


def _confidence(case: Case, ranks: tuple[int, ...]) -> Confidence:
    """Lines of a job that runs are not of one moment; stacks, or watchdogs that gave up, show that it stands."""
    is_seen = any(rank in case.positions for rank in ranks) or any(case.logs.of(WorkTimeout))
    return Confidence.PROBABLE if is_seen else Confidence.POSSIBLE


def _blocked_on(root: OpRoot) -> BlockedOn:
    if root.debts:
        debt = root.debts[0]
        op = "recv" if debt.missing == "send" else "send"
        return BlockedOn(group=f"communicator {debt.group}", seq=None, op=op)
    lag = root.lags[0]
    return BlockedOn(group=f"communicator {lag.group.name}", seq=lag.count + 1, op="unknown")


def _places(case: Case, ranks: tuple[int, ...]) -> tuple[CodeLocation, ...]:
    frames = ((rank, case.positions[rank].user_frame) for rank in ranks[:2] if rank in case.positions)
    return tuple(case.locate(rank, frame) for rank, frame in frames if frame)


def _citations(root: OpRoot) -> Iterator[Citation]:
    for debt in root.debts[:2]:
        yield from _cite_debt(debt)
    for lag in root.lags[:2]:
        for ranks, count in ((lag.ahead, lag.furthest), (lag.behind, lag.count)):
            traces = [lag.group.traces[rank] for rank in ranks if rank in lag.group.traces]
            longest = max(traces, key=lambda trace: len(trace.record), default=None)
            if longest:
                says = f"{name_ranks(ranks)} got no further in communicator {lag.group.name}"
                yield cite(longest.artifact, _last_line(longest), f"operation {count}", says)


def _cite_debt(debt: Debt) -> Iterator[Citation]:
    other = "recv" if debt.missing == "send" else "send"
    says = f"rank {debt.other} issued it"
    yield cite(debt.of_other.artifact, _last_line(debt.of_other), f"{debt.count} {other} more", says)
    yield cite(debt.of_owing.artifact, "all lines", f"{debt.count} {debt.missing} less", f"rank {debt.owing}")


def _last_line(trace: Trace) -> str:
    return f"line {trace.record.line[-1] if len(trace.record) else 0}"


DETECTOR = Detector(
    causes=(
        Cause.COLLECTIVE_OP_MISMATCH,
        Cause.COLLECTIVE_SHAPE_MISMATCH,
        Cause.COLLECTIVE_EXTRA,
        Cause.COLLECTIVE_SKIPPED,
        Cause.COLLECTIVE_DESYNC,
        Cause.P2P_MISMATCH,
        Cause.GROUP_ORDER_DEADLOCK,
    ),
    detect=detect,
)
