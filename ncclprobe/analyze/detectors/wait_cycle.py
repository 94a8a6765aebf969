"""Ranks that wait for one another in a ring: process groups in different orders, or sends and recvs that do not pair.

In: cycles of the wait-for graph. Out: a finding per cycle, with each rank's call.
"""

from collections import defaultdict
from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.heads import CallKey, Head
from ncclprobe.analyze.waits import Reason, Root
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import Cause, Confidence, Finding

_FIXES = {
    Cause.GROUP_ORDER_DEADLOCK: "Let all ranks use their process groups in the same order.",
    Cause.COLLECTIVE_DESYNC: "Make all ranks issue the same calls in the same order.",
    Cause.P2P_MISMATCH: "Pair every send with its recv, in the same order on both ends, or put them in one batch.",
}


def detect(case: Case) -> Iterator[Finding]:
    """A divergence inside one group explains a ring better."""
    for root in case.waits.roots if not case.mismatches else ():
        if root.reason is Reason.CYCLE:
            yield _finding(case, root)


def _finding(case: Case, root: Root) -> Finding:
    heads = [case.waits.heads[rank] for rank in root.ranks if rank in case.waits.heads]
    odd = _odd_ones(heads)
    cause = Cause.P2P_MISMATCH if any(head.call.is_p2p for head in heads) else Cause.GROUP_ORDER_DEADLOCK
    if odd and cause is Cause.GROUP_ORDER_DEADLOCK:
        cause = Cause.COLLECTIVE_DESYNC
    owing = _owing(case, root) if cause is Cause.P2P_MISMATCH else root.ranks
    groups = sorted({head.call.group.label for head in heads})
    is_open = cause is Cause.COLLECTIVE_DESYNC or bool(case.waits.unheard)
    return Finding(
        cause=cause,
        summary=f"{name_ranks(root.ranks).capitalize()} wait for one another, in {', '.join(groups)}."[:200],
        guilty_ranks=() if cause is Cause.COLLECTIVE_DESYNC else owing,
        suspects=odd if cause is Cause.COLLECTIVE_DESYNC else (),
        confidence=Confidence.POSSIBLE if is_open else Confidence.CERTAIN,
        victims=case.waits.victims(root),
        blocked_on=case.waits.blocked_on(root),
        where=tuple(case.locate(h.rank, f) for h in heads[:2] if (f := case.call_site((h.rank,), h.call.stack))),
        evidence=tuple(
            cite(head.artifact, f"entry {head.call.entry}", str(head.call.signature), _says(head)) for head in heads[:4]
        ),
        next_steps=("compare the call sites: each rank holds what the next one waits for",),
        fix=_FIXES[cause],
    )


def _odd_ones(heads: list[Head]) -> tuple[int, ...]:
    """The few that wait in another call than most of the ring: they left the common path, earlier than dumps reach."""
    by_call: dict[tuple[CallKey, ...], list[int]] = defaultdict(list)
    for head in heads:
        by_call[head.keys].append(head.rank)
    classes = sorted(by_call.values(), key=len)
    return tuple(classes[0]) if len(classes[-1]) > 2 * len(classes[0]) else ()


def _owing(case: Case, root: Root) -> tuple[int, ...]:
    """The ends of a send or recv that do not hold it: they owe the missing call."""
    heads = case.waits.heads
    ends = ((end, key) for key in root.keys for end in key.ends if end in root.ranks)
    owing = {end for end, key in ends if end not in heads or key not in heads[end].keys}
    return tuple(sorted(owing)) or root.ranks


def _says(head: Head) -> str:
    return f"rank {head.rank} waits in call {head.call.seq} of group {head.call.group.label}"


DETECTOR = Detector(causes=tuple(_FIXES), detect=detect)
