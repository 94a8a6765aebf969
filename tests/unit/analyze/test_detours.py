"""How a rank got past the call of the others: the verdict names the statement in the user's code."""

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.report import Cause, Report
from tests.evidence import dumps, evidence, recording, source

SOURCE = """
for step in range(steps):
    tokens = count()          # line 3
    if tokens == 0:
        continue
    loss.backward()           # line 6
    if is_over(loss):
        break
barrier()                     # line 9
"""
STEP = ["all_gather:1@3", "all_reduce:64@6"]


def report_of(odd: list[str], ranks: int = 3, text: str = SOURCE) -> Report:
    calls = {**dict.fromkeys(range(ranks), STEP * 6), 1: odd}
    made = {rank: recording(of, ranks=range(ranks)) for rank, of in calls.items()}
    return analyze(evidence(recordings=dumps(made), source_files=source(text)))


def places(report: Report) -> list[tuple[int, int | None, str | None]]:
    return [(where.rank, where.line, where.condition) for where in report.verdict.where]


def test_a_continue_is_named_with_its_condition() -> None:
    report = report_of([*STEP * 5, "all_gather:1@3", "all_gather:1@3"])
    assert (report.verdict.cause, report.verdict.guilty_ranks) == (Cause.COLLECTIVE_SKIPPED, (1,))
    assert places(report) == [(1, 5, "if tokens == 0 (line 4)"), (1, 3, None), (0, 6, None)]
    assert report.verdict.where[0].source_line == "continue"
    assert "It went past line 6 by continue, line 5." in report.verdict.summary
    assert any(citation.place == "line 5" for citation in report.verdict.evidence)


def test_who_has_left_the_loop_has_skipped_what_the_others_still_do_in_it() -> None:
    report = report_of([*STEP * 5, "all_gather:1@3", "barrier:1@9"])
    assert (report.verdict.cause, report.verdict.guilty_ranks) == (Cause.COLLECTIVE_SKIPPED, (1,))
    assert places(report)[0] == (1, 8, "if is_over(loss) (line 7)")
    assert "leave the loop in the same step" in report.verdict.fix


def test_without_a_majority_nobody_tells_who_left_too_early() -> None:
    report = report_of([*STEP * 5, "all_gather:1@3", "barrier:1@9"], ranks=2)
    assert report.verdict.cause is Cause.COLLECTIVE_DESYNC
    assert (1, 8, "if is_over(loss) (line 7)") not in places(report)


def test_where_two_ways_lead_past_none_is_named() -> None:
    twice = SOURCE.replace("    if tokens == 0:\n        continue", "    if a: continue\n    if b: continue")
    report = report_of([*STEP * 5, "all_gather:1@3", "all_gather:1@3"], text=twice)
    assert report.verdict.cause is Cause.COLLECTIVE_SKIPPED
    assert places(report) == [(1, 3, None), (0, 6, None)]


def test_an_extra_call_inside_the_loop_is_still_one() -> None:
    text = SOURCE.replace("    if is_over(loss):", "    log(); is_over(loss)\n    if 0:")
    report = report_of([*STEP * 5, "all_gather:1@3", "broadcast:5@7"], text=text)
    assert report.verdict.cause is Cause.COLLECTIVE_EXTRA
