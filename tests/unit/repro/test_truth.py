"""What is planted, and which verdicts count as having found it."""

from dataclasses import replace
from pathlib import Path

import pytest

from ncclprobe.model.errors import NcclprobeError
from ncclprobe.model.report import Cause, CodeLocation, Confidence, Verdict
from ncclprobe.repro.catalog import find
from ncclprobe.repro.truth import is_planted, truth_of

REPRO = find("mismatched-logging")
TRUTH = truth_of(REPRO, 4)


def where(rank: int, file: str, line: int | None) -> CodeLocation:
    return CodeLocation(rank=rank, file=file, line=line, function="report")


RIGHT = Verdict(
    cause=Cause.COLLECTIVE_EXTRA,
    summary="",
    guilty_ranks=(0,),
    guilty_hosts=("node1",),
    victims="1-3",
    confidence=Confidence.PROBABLE,
    blocked_on=None,
    where=(where(0, f"/home/someone/{TRUTH.file}", TRUTH.line),),
    evidence=(),
    against=(),
    next_steps=(),
    fix="",
)


def test_the_truth_is_the_call_under_the_rank_condition() -> None:
    lines = REPRO.path.read_text(encoding="utf-8").splitlines()
    assert lines[TRUTH.line - 2].strip() == "if rank == 0:"
    assert lines[TRUTH.line - 1].strip().startswith("log(step, mean_over_ranks(loss))")
    assert (TRUTH.cause, TRUTH.guilty_ranks, TRUTH.function) == (Cause.COLLECTIVE_EXTRA, (0,), "report")


@pytest.mark.parametrize("markers", [0, 2])
def test_a_program_must_mark_exactly_one_line(tmp_path: Path, markers: int) -> None:
    program = tmp_path / "train.py"
    program.write_text("step()  # planted: here\n" * markers)
    with pytest.raises(NcclprobeError, match=f"train.py marks {markers} lines"):
        truth_of(replace(REPRO, program=str(program)), 4)


def test_the_function_is_the_innermost_one_or_the_module(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("def outer():\n    def inner():\n        step()  # planted: here\n    inner()\n")
    assert truth_of(replace(REPRO, program=str(program)), 4).function == "inner"
    program.write_text("def outer():\n    pass\nstep()  # planted: here\n")
    assert truth_of(replace(REPRO, program=str(program)), 4).function == "<module>"


def test_the_planted_verdict_is_right_wherever_the_copy_of_the_program_lay() -> None:
    is_right, reason = is_planted(RIGHT, TRUTH)
    assert is_right
    assert f"{TRUTH.file}:{TRUTH.line}" in reason


def test_other_places_beside_the_planted_one_do_no_harm() -> None:
    others = (where(1, TRUTH.file, 1), where(0, "other.py", 5))
    assert is_planted(replace(RIGHT, where=(*others, *RIGHT.where)), TRUTH)[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cause": Cause.COLLECTIVE_DESYNC}, "the cause is collective-desync, planted is collective-extra"),
        ({"cause": Cause.INCONCLUSIVE, "guilty_ranks": ()}, "the cause is inconclusive"),
        ({"guilty_ranks": (1,)}, "it blames rank 1, guilty is rank 0"),
        ({"guilty_ranks": (0, 1)}, "it blames ranks 0-1, guilty is rank 0"),
        ({"guilty_ranks": ()}, "it blames no rank"),
        ({"where": ()}, "it points to no line"),
        ({"where": (where(0, TRUTH.file, TRUTH.line + 1),)}, f"it points to {TRUTH.file}:{TRUTH.line + 1}, planted is"),
        ({"where": (where(0, TRUTH.file, None),)}, "it points to"),
        ({"where": (where(0, "other.py", TRUTH.line),)}, f"it points to other.py:{TRUTH.line}"),
        ({"where": (where(1, TRUTH.file, TRUTH.line),)}, "it points to no line"),
    ],
)
def test_a_near_miss_is_wrong_and_says_why(change: dict[str, object], reason: str) -> None:
    is_right, said = is_planted(replace(RIGHT, **change), TRUTH)  # type: ignore[arg-type]
    assert not is_right
    assert reason in said


@pytest.mark.parametrize("markers", [0, 1])
def test_a_cause_outside_the_program_has_no_line(tmp_path: Path, markers: int) -> None:
    program = tmp_path / "train.py"
    program.write_text("step()  # planted: here\n" * markers)
    truth = truth_of(replace(REPRO, program=str(program), has_line=False), 4)
    assert truth.line is None
    assert is_planted(replace(RIGHT, where=()), truth) == (True, "collective-extra by rank 0, as planted")
    assert not is_planted(replace(RIGHT, guilty_ranks=(1,)), truth)[0]


def test_where_nothing_hangs_nobody_is_to_blame() -> None:
    truth = truth_of(replace(REPRO, cause=Cause.PROGRESSING, guilty_ranks=()), 4)
    assert truth.line is None
    assert is_planted(replace(RIGHT, cause=Cause.PROGRESSING, guilty_ranks=(), where=()), truth)[0]
    assert not is_planted(replace(RIGHT, cause=Cause.PROGRESSING), truth)[0]
