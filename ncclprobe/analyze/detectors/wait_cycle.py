"""Ranks that wait for one another in a ring: process groups in different orders, or sends and recvs that do not pair.

In: cycles of the wait-for graph. Out: a finding per cycle, with each rank's call.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.heads import Head
from ncclprobe.analyze.waits import Reason, Root
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import Cause, Confidence, Finding

_FIXES = {
    Cause.GROUP_ORDER_DEADLOCK: "Let all ranks use their process groups in the same order.",
    Cause.P2P_MISMATCH: "Pair every send with its recv, in the same order on both ends, or put them in one batch.",
}


def detect(case: Case) -> Iterator[Finding]:
    """A divergence inside one group explains a ring better."""
    for root in case.waits.roots if not case.mismatches else ():
        if root.reason is Reason.CYCLE:
            yield _finding(case, root)


def _finding(case: Case, root: Root) -> Finding:
    heads = [case.waits.heads[rank] for rank in root.ranks if rank in case.waits.heads]
    is_p2p = any(head.call.is_p2p for head in heads)
    cause = Cause.P2P_MISMATCH if is_p2p else Cause.GROUP_ORDER_DEADLOCK
    groups = sorted({head.call.group.label for head in heads})
    return Finding(
        cause=cause,
        summary=f"{name_ranks(root.ranks).capitalize()} wait for one another, in {', '.join(groups)}."[:200],
        guilty_ranks=root.ranks,
        confidence=Confidence.CERTAIN if not case.waits.unheard else Confidence.POSSIBLE,
        victims=case.waits.victims(root),
        blocked_on=case.waits.blocked_on(root),
        where=tuple(case.locate(h.rank, f) for h in heads[:2] if (f := case.call_site((h.rank,), h.call.stack))),
        evidence=tuple(
            cite(head.artifact, f"entry {head.call.entry}", str(head.call.signature), _says(head)) for head in heads[:4]
        ),
        next_steps=("compare the call sites: each rank holds what the next one waits for",),
        fix=_FIXES[cause],
    )


def _says(head: Head) -> str:
    return f"rank {head.rank} waits in call {head.call.seq} of group {head.call.group.label}"


DETECTOR = Detector(causes=tuple(_FIXES), detect=detect)
