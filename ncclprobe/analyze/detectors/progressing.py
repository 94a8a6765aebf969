"""Nothing hangs: ranks move between the two looks.

In: positions at two looks. Out: a finding when no rank stands still.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.model.report import Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """A collective holds its members in step, so ranks that all move are making progress together."""
    positions = list(case.positions.values())
    if not positions or not all(position.is_still is False or position.is_idle is False for position in positions):
        return
    if case.missing or case.silent_hosts:
        return
    moving = [position for position in positions if position.is_still is False]
    if not moving:
        return
    yield Finding(
        cause=Cause.PROGRESSING,
        summary="Nothing hangs: every rank was at work between the two looks, and stacks changed.",
        guilty_ranks=(),
        confidence=Confidence.PROBABLE if len(moving) == len(positions) else Confidence.POSSIBLE,
        evidence=tuple(
            cite(p.artifact, "both looks", str(p.user_frame or p.place.frame), f"rank {p.rank} moved between the looks")
            for p in moving[:3]
        ),
        next_steps=("if it is slow rather than stuck, look again with a longer --interval",),
    )


DETECTOR = Detector(causes=(Cause.PROGRESSING,), detect=detect)
