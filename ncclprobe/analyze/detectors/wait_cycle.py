"""Ranks that wait for one another in a ring: process groups in different orders, or sends and recvs that do not pair.

In: cycles of the wait-for graph. Out: a finding per cycle, with each rank's call.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.departures import course_of
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.heads import CallKey, Head
from ncclprobe.analyze.waits import Reason, Root
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import Cause, Confidence, Finding

_FIXES = {
    Cause.GROUP_ORDER_DEADLOCK: "Let all ranks use their process groups in the same order.",
    Cause.COLLECTIVE_DESYNC: "Make all ranks issue the same calls in the same order.",
    Cause.COLLECTIVE_SKIPPED: "Let every rank make the call that these left out, or none: decide from a shared value.",
    Cause.COLLECTIVE_EXTRA: "Let every rank make the call that these make alone, and gate only what follows it.",
    Cause.P2P_MISMATCH: "Pair every send with its recv, in the same order on both ends, or put them in one batch.",
}


def detect(case: Case) -> Iterator[Finding]:
    """A divergence inside one group explains a ring better."""
    for root in case.waits.roots if not case.mismatches else ():
        if root.reason is Reason.CYCLE:
            yield _finding(case, root)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """What a ring says: who is named, or only suspected, and for which cause."""

    cause: Cause
    guilty: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    confidence: Confidence = Confidence.POSSIBLE


def _claim(case: Case, root: Root, heads: list[Head]) -> _Claim:
    # Dumps of a job that runs are not of one moment: any ring can show in them.
    is_open = bool(case.waits.unheard) or not _stands_still(case, root)
    sure = Confidence.POSSIBLE if is_open else Confidence.CERTAIN
    if any(head.call.is_p2p for head in heads):
        return _Claim(cause=Cause.P2P_MISMATCH, guilty=_owing(case, root), confidence=sure)
    odd = _odd_ones(heads)
    if not odd:
        return _Claim(cause=Cause.GROUP_ORDER_DEADLOCK, guilty=root.ranks, confidence=sure)
    cause = _departure(case, odd, [head for head in heads if head.rank not in odd])
    if cause is None:
        return _Claim(cause=Cause.COLLECTIVE_DESYNC, suspects=odd)
    return _Claim(cause=cause, guilty=odd, confidence=Confidence.POSSIBLE if is_open else Confidence.PROBABLE)


def _stands_still(case: Case, root: Root) -> bool:
    """Whether nothing speaks against it: recorders went on a moment ago, and no two looks at stacks were the same."""
    seen = [case.positions[rank] for rank in root.ranks if rank in case.positions]
    return case.looks.is_frozen is not False or (len(seen) == len(root.ranks) and all(p.is_still for p in seen))


def _departure(case: Case, odd: tuple[int, ...], others: list[Head]) -> Cause | None:
    """How the few left their own path, where all of them did and none of the others."""
    recordings = {s.artifact.path: s.record for s in case.evidence.recordings}
    heads = [*others, *(case.waits.heads[rank] for rank in odd)]
    courses = {head.rank: course_of(head, recordings[head.artifact.path]) for head in heads}
    causes = {courses[rank].departure for rank in odd}
    kept = all(courses[head.rank].is_kept for head in others)
    return causes.pop() if kept and len(causes) == 1 else None


def _finding(case: Case, root: Root) -> Finding:
    heads = [case.waits.heads[rank] for rank in root.ranks if rank in case.waits.heads]
    claim = _claim(case, root, heads)
    first = sorted(heads, key=lambda head: head.rank not in (*claim.guilty, *claim.suspects))
    groups = sorted({head.call.group.label for head in heads})
    return Finding(
        cause=claim.cause,
        summary=f"{name_ranks(root.ranks).capitalize()} wait for one another, in {', '.join(groups)}."[:200],
        guilty_ranks=claim.guilty,
        suspects=claim.suspects,
        confidence=claim.confidence,
        victims=tuple(rank for rank in case.waits.heads if rank not in (*claim.guilty, *claim.suspects)),
        blocked_on=case.waits.blocked_on(root),
        where=tuple(case.locate(h.rank, f) for h in first[:2] if (f := case.call_site((h.rank,), h.call.stack))),
        evidence=tuple(
            cite(head.artifact, f"entry {head.call.entry}", str(head.call.signature), _says(head)) for head in first[:4]
        ),
        next_steps=("compare the call sites: each rank holds what the next one waits for",),
        fix=_FIXES[claim.cause],
    )


def _odd_ones(heads: list[Head]) -> tuple[int, ...]:
    """The few that wait in another call than most of the ring: they left the common path, earlier than dumps reach."""
    by_call: dict[tuple[CallKey, ...], list[int]] = defaultdict(list)
    for head in heads:
        by_call[head.keys].append(head.rank)
    most = max(map(len, by_call.values()))
    return tuple(sorted(rank for ranks in by_call.values() if most > 2 * len(ranks) for rank in ranks))


def _owing(case: Case, root: Root) -> tuple[int, ...]:
    """The ends of a send or recv that do not hold it: they owe the missing call."""
    heads = case.waits.heads
    ends = ((end, key) for key in root.keys for end in key.ends if end in root.ranks)
    owing = {end for end, key in ends if end not in heads or key not in heads[end].keys}
    return tuple(sorted(owing)) or root.ranks


def _says(head: Head) -> str:
    return f"rank {head.rank} waits in call {head.call.seq} of group {head.call.group.label}"


DETECTOR = Detector(causes=tuple(_FIXES), detect=detect)
