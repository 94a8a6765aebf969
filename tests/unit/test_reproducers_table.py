"""The table of reproducers in docs/reference/accuracy.md says what came of each job, in each way."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.reproducers import BEGIN, END, gathered, main, outcome, summary, table, written
from ncclprobe.rehearsal import Result, Way

RIGHT = Result(
    name="demo",
    way=Way.LIVE,
    planted="collective-extra",
    cause="collective-extra",
    guilty_ranks=(0, 1),
    confidence="certain",
    seconds=2.04,
    is_right=True,
    reason="as planted",
)
CAUTIOUS = Result(
    name="demo",
    way=Way.STACKS,
    planted="collective-extra",
    cause="inconclusive",
    confidence="possible",
    seconds=1.0,
    is_right=False,
)
WRONG = Result(
    name="demo",
    way=Way.BUNDLE,
    planted="collective-extra",
    cause="progressing",
    confidence="probable",
    seconds=0.5,
    is_right=False,
    reason="the cause is another",
)
SKIPPED = Result(name="gpu", way=Way.LIVE, planted="stuck-in-cuda", reason="gpu needs a GPU")
ROWS = gathered(asdict(result) for result in (RIGHT, CAUTIOUS, WRONG, SKIPPED))


def test_each_job_and_way_has_its_cell() -> None:
    _, _, demo, gpu = table(ROWS).split("\n")
    assert demo == (
        "| `demo` | `collective-extra` | right: `collective-extra` by 0-1, certain, 2.0 s "
        "| cautious: `inconclusive`, possible, 1.0 s "
        "| wrong: `progressing`, probable, 0.5 s; the cause is another |"
    )
    assert gpu == "| `gpu` | `stuck-in-cuda` | not run: gpu needs a GPU |  |  |"


def test_outcomes_are_counted() -> None:
    assert summary(ROWS) == "2 reproducers, each in 3 ways: 1 right, 1 cautious, 1 wrong, 1 not run."


def test_of_two_runs_the_later_one_counts() -> None:
    again = gathered([asdict(WRONG), {**asdict(WRONG), "cause": "collective-extra", "is_right": True}])
    assert [outcome(row) for row in again.values()] == ["right"]


def test_only_what_is_between_the_markers_is_replaced() -> None:
    assert written(f"a {BEGIN} old {END} b", "new") == f"a {BEGIN}\n\nnew\n\n{END} b"


@pytest.mark.parametrize(("result", "status"), [(RIGHT, 0), (SKIPPED, 0), (WRONG, 1)])
def test_the_exit_status_tells_of_a_wrong_verdict(result: Result, status: int, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps([asdict(result)]))
    assert main([str(tmp_path / "x.json")]) == status
