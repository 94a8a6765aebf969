"""A host does not answer and none of its ranks speaks through any other evidence.

In: the hosts asked and the ranks heard. Out: a finding naming the ranks that can only be on that host.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """With one host that gave nothing every missing rank is on it; with two nobody can say which."""
    silent = case.unreachable_hosts
    if len(silent) != 1 or len(case.silent_hosts) != 1 or not case.missing or not case.ranks or case.mismatches:
        return
    host = silent[0]
    gap = next((gap for outcome in case.evidence.hosts if outcome.name == host for gap in outcome.gaps), None)
    yield Finding(
        cause=Cause.HOST_UNREACHABLE,
        summary=f"{name_ranks(case.missing).capitalize()} can only be on {host}, which does not answer."[:200],
        guilty_ranks=case.missing,
        confidence=Confidence.POSSIBLE,
        victims=tuple(case.ranks),
        evidence=(
            Citation(
                artifact="manifest.json",
                place=f"host {host}",
                quote=gap.why[:200] if gap else "no answer",
                says="the host did not answer; that may also be the way to it only",
            ),
        ),
        next_steps=(f"reach {host} another way (its console, the scheduler) and see whether it is up",),
        fix="Bring the host back or replace it, then restart from the last checkpoint.",
    )


DETECTOR = Detector(causes=(Cause.HOST_UNREACHABLE,), detect=detect)
