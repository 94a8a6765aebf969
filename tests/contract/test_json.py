"""The report as JSON is a contract for users' scripts: names, types and values that must not change."""

import io
import json

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.report import Cause, Confidence, Report, Status
from ncclprobe.report.renderer import find_renderers
from tests.unit.analyze.test_verdict import demo

TOP = {
    *("schema_version", "status", "verdict", "findings", "ranks", "groups", "gpus", "timeline", "gaps", "coverage"),
}
VERDICT = {
    *("cause", "summary", "guilty_ranks", "guilty_hosts", "victims", "confidence", "blocked_on", "where"),
    *("evidence", "against", "next_steps", "fix", "guilty_are"),
}
GROUP = {"name", "description", "ranks", "behind", "last_seq", "waits"}
WAIT = {"ranks", "waits_for", "op", "seq", "hops"}
CAUSES = {
    *("collective-skipped", "collective-extra", "collective-desync", "collective-op-mismatch"),
    *("collective-shape-mismatch", "group-order-deadlock", "p2p-mismatch", "stuck-in-dataloader"),
    *("stuck-in-checkpoint", "stuck-in-preprocessing", "stuck-in-evaluation", "stuck-in-logging", "stuck-in-compile"),
    *("stuck-on-lock", "stuck-in-python", "stuck-in-cuda", "rank-oom-killed", "rank-crashed", "rank-exited"),
    *("host-unreachable", "gpu-fault", "network-fault", "collective-stalled", "rank-never-joined"),
    *("init-misconfigured", "timeout-too-short", "known-nccl-bug", "progressing", "inconclusive"),
}


def as_json(report: Report) -> dict:  # type: ignore[type-arg]
    stream = io.StringIO()
    find_renderers()["json"].write(report, stream, None, False)
    return json.loads(stream.getvalue())  # type: ignore[no-any-return]


def test_the_fields_are_the_contract() -> None:
    report = as_json(analyze(demo()))
    assert set(report) == TOP
    assert set(report["verdict"]) == VERDICT
    assert {"group", "seq", "op"} <= set(report["verdict"]["blocked_on"])
    assert {"rank", "file", "line", "function", "source_line"} <= set(report["verdict"]["where"][0])
    assert set(report["verdict"]["evidence"][0]) == {"artifact", "place", "quote", "says"}
    assert set(report["groups"][0]) == GROUP
    assert set(report["groups"][0]["waits"][0]) == WAIT


def test_values_are_plain_json() -> None:
    verdict = as_json(analyze(demo()))["verdict"]
    assert (verdict["cause"], verdict["guilty_ranks"], verdict["confidence"]) == ("collective-extra", [0], "certain")
    assert verdict["victims"] == "1-3"
    assert verdict["guilty_are"] is None
    assert len(verdict["summary"]) <= 200


def test_the_words_do_not_change() -> None:
    assert {str(cause) for cause in Cause} == CAUSES
    assert [str(level) for level in Confidence] == ["possible", "probable", "certain"]
    assert {str(status) for status in Status} == {"complete", "partial", "no-evidence"}
