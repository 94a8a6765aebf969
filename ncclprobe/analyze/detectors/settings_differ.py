"""Ranks of one job run with other versions or settings than the rest.

In: settings by rank. Out: a finding for each setting in which a few differ: a lead, never an answer by itself, for most
such differences are harmless.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.settings import Value, minority, settings_of
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """In order of the settings' names."""
    for name, of_rank in settings_of(case).items():
        found = minority(of_rank)
        if found:
            yield _finding(name, of_rank, *found)


def _finding(name: str, of_rank: dict[int, Value], usual: str, most: tuple[int, ...], few: tuple[int, ...]) -> Finding:
    odd = of_rank[few[0]]
    have = "has" if len(few) == 1 else "have"
    summary = f"{name_ranks(few).capitalize()} {have} {name}={odd.text}, {name_ranks(most)} {name}={usual}."
    return Finding(
        cause=Cause.INIT_MISCONFIGURED,
        summary=summary[:200],
        guilty_ranks=(),
        suspects=few,
        confidence=Confidence.POSSIBLE,
        evidence=(odd.citation, of_rank[most[0]].citation),
        next_steps=(f"see whether {name} is meant to differ between these ranks",),
        fix="Give all ranks the same settings and versions.",
    )


DETECTOR = Detector(causes=(Cause.INIT_MISCONFIGURED,), detect=detect)
