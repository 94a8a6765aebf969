"""Watchdog lines alone: who waits in which call, who never issued it, who issued another.

In: standings of ranks in groups. Out: a finding for the group with most waiting ranks; none where recorders tell more.

A rank whose own counters end before the call the others wait in did not issue it. A rank that printed nothing is a
suspect: something else must show what it does before it is named.
"""

from collections.abc import Iterator
from dataclasses import replace

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.logs import Said, cite_said
from ncclprobe.analyze.slowness import is_slow_work
from ncclprobe.analyze.standings import GroupLog
from ncclprobe.analyze.whereabouts import Whereabouts, find_whereabouts, shown_ranks
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import WorkTimeout
from ncclprobe.model.report import Cause, Confidence, Finding

_DIFFER = {
    Cause.COLLECTIVE_SHAPE_MISMATCH: "Give the call the same sizes on all ranks: pad the last batch.",
    Cause.COLLECTIVE_OP_MISMATCH: "Make all ranks issue the same collective here; compare the two call sites.",
    Cause.COLLECTIVE_DESYNC: "Make all ranks issue the same calls in the same order.",
}
_DUMPS = (
    "set TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 (ncclprobe run does): dumps tell the calls"
)
_ABSENT_FIX = "Free that rank (its stack says from what), or let the others do the same work instead of waiting for it."
_SLOW_FIX = "Give the group a longer timeout for this step, or share the work out among the ranks."


def detect(case: Case) -> Iterator[Finding]:
    """At most one finding: the group with most waiting ranks; the others wait behind it or cannot be told apart."""
    if case.mismatches or case.waits.roots:
        return
    for group in case.standings[:1]:
        if group.waiting and group.is_world:
            yield from _of_world(case, group)
        elif group.waiting:
            yield _part_of_group(case, group)


def _of_world(case: Case, group: GroupLog) -> Iterator[Finding]:
    sides = group.sides
    if len(sides) > 1:
        yield _different_calls(case, group)
    elif group.behind:
        yield _absent(case, group, group.behind, are_told=True)
    elif group.ahead:
        yield _ahead(case, group)
    elif group.silent:
        yield _absent(case, group, group.silent, are_told=False)
    elif len(group.members) > 1:
        yield _stalled(case, group)


def _absent(case: Case, group: GroupLog, ranks: tuple[int, ...], *, are_told: bool) -> Finding:
    """Ranks that did not issue the call the others wait in; `are_told`: by their own counters.

    Of silent ranks only those can be named of which something else shows what they do.
    """
    ranks = ranks if are_told else shown_ranks(case, ranks) or ranks
    where = find_whereabouts(case, ranks)
    if are_told and where.shown_by is None and _waits_elsewhere(case, group, ranks):
        where = replace(where, cause=Cause.COLLECTIVE_SKIPPED, doing="waiting in another group")
    is_slow = is_slow_work(where, [group.standings[rank].said for rank in group.waiting])
    op, seq = group.blocked_on.op, group.seq
    verb = "did not issue" if are_told else "said nothing of"
    is_most = 2 * len(ranks) >= len(group.members)
    is_named = (are_told or where.shown_by is not None) and not (is_most and where.shown_by is None)
    return Finding(
        cause=Cause.TIMEOUT_TOO_SHORT if is_slow else where.cause,
        summary=(
            f"{name_ranks(ranks).capitalize()} {verb} {op}, call {seq} of {group.label}, that "
            f"{name_ranks(group.waiting)} wait in: {where.doing}."
        )[:200],
        guilty_ranks=ranks if is_named else (),
        suspects=() if is_named else ranks,
        confidence=_confidence(where, are_told=are_told),
        victims=tuple(rank for rank in group.members if rank not in ranks),
        blocked_on=group.blocked_on,
        where=where.places,
        evidence=(*_cite_absent(group, ranks), *where.citations, *_cite_waiting(group)),
        next_steps=(f"look at the stacks and the last log lines of {name_ranks(ranks)}", _DUMPS),
        fix=_SLOW_FIX if is_slow else _ABSENT_FIX,
    )


def _confidence(where: Whereabouts, *, are_told: bool) -> Confidence:
    """Counters and stacks are two kinds of evidence that agree; lines of one log are one."""
    if are_told:
        return Confidence.CERTAIN if where.shown_by == "stacks" else Confidence.PROBABLE
    return Confidence.PROBABLE if where.shown_by == "stacks" else Confidence.POSSIBLE


def _waits_elsewhere(case: Case, group: GroupLog, ranks: tuple[int, ...]) -> bool:
    """Whether the absent ranks' own watchdogs wait in other groups."""
    others = [other for other in case.standings if other is not group]
    return all(any(rank in other.waiting for other in others) for rank in ranks)


def _different_calls(case: Case, group: GroupLog) -> Finding:
    """The same number, another call. A side is named when another holds most of the group."""
    sides = group.sides
    (work, most), rest = sides[0], sides[1:]
    few = tuple(sorted(rank for _, ranks in rest for rank in ranks))
    has_majority = 2 * len(most) > len(group.members)
    is_pair = len(group.members) == 2
    cause = _kind_of_difference([side[0] for side in sides]) if has_majority or is_pair else Cause.COLLECTIVE_DESYNC
    is_whole = not group.silent and not group.ahead
    guilty = few if has_majority else group.members if is_pair else ()
    other = rest[0]
    return Finding(
        cause=cause,
        summary=(
            f"As call {group.seq} of {group.label} {name_ranks(few)} issued {_text(other[0])}, "
            f"{name_ranks(most)} {_text(work)}."
        )[:200],
        guilty_ranks=guilty,
        confidence=Confidence.PROBABLE if has_majority or (is_pair and is_whole) else Confidence.POSSIBLE,
        victims=most if has_majority else (),
        blocked_on=group.blocked_on,
        evidence=tuple(_cite_side(group, call, ranks) for call, ranks in sides[:4]),
        next_steps=(f"compare the stacks of {name_ranks(few)} with the others'", _DUMPS),
        fix=_DIFFER[cause],
    )


def _kind_of_difference(works: list[WorkTimeout]) -> Cause:
    """A barrier beside another all-reduce comes from another place in the program: skipped or extra, who can tell."""
    if len({work.op for work in works}) > 1:
        return Cause.COLLECTIVE_OP_MISMATCH
    return Cause.COLLECTIVE_DESYNC if _has_barrier(works) else Cause.COLLECTIVE_SHAPE_MISMATCH


def _has_barrier(works: list[WorkTimeout]) -> bool:
    return any(work.op == "all_reduce" and work.numel_in == 1 for work in works)


def _text(work: WorkTimeout) -> str:
    sizes = f"({work.numel_in} -> {work.numel_out})" if work.numel_in is not None else ""
    return f"{work.op}{sizes}"


def _ahead(case: Case, group: GroupLog) -> Finding:
    """Some wait in a later call. A root may be done before the others; else the counts disagree."""
    later = [rank for rank in group.ahead if rank not in group.silent]
    is_pair = len(group.members) == 2 and _is_joint(group)
    suspects = group.silent or tuple(sorted({*later}))
    return Finding(
        cause=Cause.COLLECTIVE_DESYNC,
        summary=(
            f"{name_ranks(group.waiting).capitalize()} wait in call {group.seq} of {group.label}, "
            f"{name_ranks(later)} in a later one: their sequences disagree."
        )[:200],
        guilty_ranks=group.members if is_pair else (),
        suspects=() if is_pair else suspects,
        confidence=Confidence.PROBABLE if is_pair else Confidence.POSSIBLE,
        blocked_on=group.blocked_on,
        evidence=(
            *_cite_waiting(group),
            *(cite_said(group.standings[rank].said, f"rank {rank} is past it") for rank in later[:1]),
        ),
        next_steps=(f"look at the stacks and logs of {name_ranks(suspects)}", _DUMPS),
        fix=_DIFFER[Cause.COLLECTIVE_DESYNC],
    )


def _is_joint(group: GroupLog) -> bool:
    """Whether no rank can be done with the call before all have issued it."""
    op = group.blocked_on.op
    return op.startswith(("all_", "_all", "barrier", "reduce_scatter", "_reduce_scatter", "allgather", "_allgather"))


def _stalled(case: Case, group: GroupLog) -> Finding:
    waiting = name_ranks(group.waiting)
    return Finding(
        cause=Cause.COLLECTIVE_STALLED,
        summary=f"All of {waiting} issued {group.blocked_on.op}, call {group.seq} of {group.label}; it ends nowhere."[
            :200
        ],
        guilty_ranks=(),
        # Ranks with higher numbers may exist that said nothing.
        confidence=Confidence.PROBABLE if case.world_size is not None else Confidence.POSSIBLE,
        victims=group.waiting,
        blocked_on=group.blocked_on,
        evidence=tuple(_cite_waiting(group)),
        next_steps=(
            "look for a GPU or link fault: dmesg for Xid lines, ibstat or ethtool for ports, nvidia-smi for lost GPUs",
            "run nccl-tests all_reduce_perf on the same hosts to see whether the network alone hangs",
        ),
        fix="Find the faulty link or device: the ranks' code is in step.",
    )


def _part_of_group(case: Case, group: GroupLog) -> Finding:
    """A smaller group, whose members are not known. Chains of waits end at ranks that wait in no group."""
    waiting = {rank for other in case.standings for rank, s in other.standings.items() if s.waits_at is not None}
    outside = tuple(rank for rank in case.expected if rank not in waiting)
    if outside and 2 * len(outside) < len(case.expected):
        return _outside(case, group, outside)
    return Finding(
        cause=Cause.COLLECTIVE_STALLED,
        summary=(
            f"{name_ranks(group.waiting).capitalize()} wait in {group.blocked_on.op}, call {group.seq} of a group "
            f"{group.label} whose other members gave no log."
        )[:200],
        guilty_ranks=(),
        suspects=case.missing or group.silent or (-1,),
        confidence=Confidence.POSSIBLE,
        victims=group.waiting,
        blocked_on=group.blocked_on,
        evidence=tuple(_cite_waiting(group)),
        next_steps=("get the logs or the stacks of the other members of that group", _DUMPS),
    )


def _outside(case: Case, group: GroupLog, outside: tuple[int, ...]) -> Finding:
    """The few that no watchdog shows waiting, while all others wait in some group."""
    ranks = shown_ranks(case, outside) or outside
    where = find_whereabouts(case, ranks)
    others = tuple(rank for rank in case.expected if rank not in outside)
    is_shown = where.shown_by is not None and where.cause is not Cause.COLLECTIVE_SKIPPED
    is_sure = is_shown and where.shown_by == "stacks"
    return Finding(
        cause=where.cause,
        summary=f"All ranks but {name_ranks(outside)} wait in some group, {name_ranks(group.waiting)} in "
        f"{group.blocked_on.op}, call {group.seq} of {group.label}; {name_ranks(ranks)}: {where.doing}."[:200],
        guilty_ranks=ranks if is_shown else (),
        suspects=() if is_shown else ranks,
        confidence=Confidence.PROBABLE if is_sure else Confidence.POSSIBLE,
        victims=others,
        blocked_on=group.blocked_on,
        where=where.places,
        evidence=(*where.citations, *_cite_waiting(group)),
        next_steps=(f"look at the stacks and the last log lines of {name_ranks(ranks)}", _DUMPS),
        fix=_ABSENT_FIX,
    )


def _cite_absent(group: GroupLog, ranks: tuple[int, ...]) -> Iterator[Citation]:
    for rank in ranks[:2]:
        if rank in group.standings:
            standing = group.standings[rank]
            yield cite_said(standing.said, f"rank {rank} issued nothing after call {standing.enqueued}")


def _cite_waiting(group: GroupLog) -> Iterator[Citation]:
    for rank in group.waiting[:1]:
        says = f"{name_ranks(group.waiting)} wait in call {group.seq}"
        yield cite_said(group.standings[rank].said, says)


def _cite_side(group: GroupLog, work: WorkTimeout, ranks: tuple[int, ...]) -> Citation:
    said: Said = group.standings[ranks[0]].said
    return cite_said(said, f"{name_ranks(ranks)} issued {_text(work)} as call {work.seq}")


DETECTOR = Detector(
    causes=(*_DIFFER, Cause.COLLECTIVE_STALLED, Cause.COLLECTIVE_SKIPPED, Cause.TIMEOUT_TOO_SHORT), detect=detect
)
