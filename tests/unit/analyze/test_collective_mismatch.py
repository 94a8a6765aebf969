"""How sure a divergence is, and who is only suspected of it."""

from dataclasses import replace

import pytest

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.collectives import Recording, Signature
from ncclprobe.model.records import Evidence
from ncclprobe.model.report import Cause, Confidence, Report
from tests.evidence import dumps, recording, without_rows

STEP = ["all_gather:64", "reduce_scatter:64", "all_reduce:1"]
KEEPING = STEP * 4 + STEP
EXTRA = STEP * 4 + ["broadcast:5"] + STEP


def report_of(made: dict[int, Recording]) -> Report:
    return analyze(Evidence(recordings=dumps(made)))


def job(guilty: list[str], first_seq: int = 1) -> dict[int, Recording]:
    calls = dict.fromkeys(range(4), KEEPING) | {2: guilty}
    return {rank: recording(of, ranks=range(4), first_seq=first_seq) for rank, of in calls.items()}


def test_whole_dumps_of_all_members_are_proof() -> None:
    verdict = report_of(job(EXTRA)).verdict
    assert (verdict.cause, verdict.guilty_ranks) == (Cause.COLLECTIVE_EXTRA, (2,))
    assert verdict.confidence is Confidence.CERTAIN


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_dump_proves_less(damaged: int) -> None:
    made = job(EXTRA)
    verdict = report_of({**made, damaged: without_rows(made[damaged], 1)}).verdict
    assert (verdict.guilty_ranks, verdict.confidence) == ((2,), Confidence.PROBABLE)


def test_a_divergence_before_the_oldest_call_proves_less() -> None:
    verdict = report_of(job(STEP[1:] + STEP * 4, first_seq=90)).verdict
    assert (verdict.guilty_ranks, verdict.confidence) == ((2,), Confidence.PROBABLE)


def test_a_call_that_damage_took_is_no_divergence() -> None:
    made = job(KEEPING)
    verdict = report_of({**made, 2: without_rows(made[2], 13, 14)}).verdict
    assert verdict.guilty_ranks == ()


def test_parts_that_do_not_fit_name_the_one_or_suspect_all() -> None:
    sizes = {0: ((1,), (1,)), 1: ((2,), (1,))}
    made = {
        rank: replace(
            recording(["all_to_all:8"], ranks=range(2)),
            signatures=(Signature("all_to_all", (sent,), (got,), ("Float",), ("Float",)),),
        )
        for rank, (sent, got) in sizes.items()
    }
    report = report_of(made)
    assert (report.verdict.cause, report.findings[0].suspects) == (Cause.INCONCLUSIVE, (0, 1))
    assert "3 elements go in" in report.verdict.summary
