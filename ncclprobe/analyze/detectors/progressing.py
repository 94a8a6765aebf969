"""Nothing hangs: every rank went on while it was looked at.

In: positions at two looks, recorders. Out: a finding when no rank stood still.

A recorder is the better witness: a rank that issued a call after the first look had finished what it was in. Stacks
that change prove less, and a CPU that is busy proves nothing: a rank that waits for a GPU spins.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.model.evidence import Citation
from ncclprobe.model.report import Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """Only when every expected rank was seen to move; a rank nobody saw could be the one that hangs."""
    if case.missing or case.silent_hosts or not case.expected:
        return
    recorded = list(_recorded_moves(case))
    if len(recorded) == len(case.expected):
        yield _finding(recorded, Confidence.CERTAIN)
        return
    moved = [position for position in case.positions.values() if position.is_still is False]
    if len(moved) == len(case.expected):
        says = "moved between the looks"
        citations = [
            cite(p.artifact, "both looks", str(p.user_frame or p.place.frame), f"rank {p.rank} {says}") for p in moved
        ]
        yield _finding(citations, Confidence.PROBABLE)


def _recorded_moves(case: Case) -> Iterator[Citation]:
    """One citation for each rank whose recorder holds a call newer than the first look at its process."""
    for rank in sorted(case.dumped & set(case.ranks)):
        looks = case.ranks[rank].looks
        for sourced in case.evidence.recordings:
            newest_ns = max(sourced.record.created_ns, default=0)
            if sourced.artifact.rank == rank and looks and newest_ns > looks[0].time_ns:
                later_s = (newest_ns - looks[0].time_ns) / 1e9
                quote = f"a call issued {later_s:.2f} s after the first look"
                yield cite(sourced.artifact, "newest entry", quote, f"rank {rank} goes on")
                break


def _finding(citations: list[Citation], confidence: Confidence) -> Finding:
    return Finding(
        cause=Cause.PROGRESSING,
        summary="Nothing hangs: every rank went on between the two looks.",
        guilty_ranks=(),
        confidence=confidence,
        evidence=tuple(citations[:3]),
        next_steps=("if it is slow rather than stuck, look again with a longer --interval",),
    )


DETECTOR = Detector(causes=(Cause.PROGRESSING,), detect=detect)
