"""What is not known about who there is, is said, and the rest is still analysed."""

from dataclasses import replace

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.collectives import ProcessGroup
from ncclprobe.model.records import Evidence
from ncclprobe.model.report import Cause, Report, Status
from tests.evidence import dumps, processes, recording

TP = ProcessGroup(name="5", description="TP")
WAITING = ["all_reduce:8"] * 5


def gaps_of(report: Report) -> dict[str, str]:
    return {gap.who: f"{gap.what}: {gap.why}" for gap in report.gaps}


def test_members_nobody_has_seen_are_missing_and_the_first_suspects() -> None:
    report = analyze(Evidence(recordings=dumps({r: recording(WAITING, group=TP, ranks=range(4)) for r in (0, 1)})))
    assert "members of groups that others use" in gaps_of(report)["ranks 2-3"]
    assert (report.status, report.verdict.guilty_ranks) == (Status.PARTIAL, ())
    assert report.verdict.summary.startswith("Ranks 2-3 could not be found")


def test_an_unseen_member_does_not_hide_a_rank_that_has_not_come() -> None:
    made = {r: recording(WAITING, group=TP, ranks=range(4)) for r in (0, 1)}
    behind = recording(WAITING[:4], completed=4, group=TP, ranks=range(4))
    report = analyze(Evidence(recordings=dumps({**made, 2: behind})))
    assert "rank 3" in gaps_of(report)
    assert report.findings[0].guilty_ranks == (2,) if report.findings else report.verdict.guilty_ranks == (2,)


def test_a_world_of_unknown_size_is_said_and_the_rest_is_analysed() -> None:
    made = {rank: recording(WAITING[: 5 - (rank == 1)], group=TP, completed=4) for rank in (0, 1)}
    report = analyze(Evidence(recordings=dumps(made)))
    assert "its world size is not known" in gaps_of(report)["the job"]
    assert "its members are not known" in gaps_of(report)["group TP"]
    assert (report.verdict.cause, report.verdict.guilty_ranks) == (Cause.STUCK_IN_PYTHON, (1,))


def test_members_beyond_the_world_are_said() -> None:
    made = {rank: recording(WAITING, group=TP, ranks=(0, 1, 9)) for rank in (0, 1)}
    report = analyze(Evidence(recordings=dumps(made), processes=processes((0, 1), 2)))
    assert "the world size is 2" in gaps_of(report)["rank 9"]


def test_a_dump_of_nobody_knows_whom_is_said() -> None:
    (known,) = dumps({0: recording(WAITING, ranks=range(2))})
    nameless = replace(known, artifact=replace(known.artifact, rank=None, path="core/trace"))
    report = analyze(Evidence(recordings=(known, nameless)))
    assert "whose dump it is" in gaps_of(report)["core/trace"]


def test_no_evidence_of_anybody_is_no_world_of_unknown_size() -> None:
    report = analyze(Evidence())
    assert (report.status, report.gaps) == (Status.NO_EVIDENCE, ())
