"""What counts as right."""

import json
from dataclasses import replace

import pytest

from ncclprobe.model.report import Cause, Confidence, Verdict
from ncclprobe.simulate.simulation import truth_of
from ncclprobe.simulate.truth import Truth, judge
from tests.unit.simulate.simulated import plan

TRUTH = Truth(
    scenario="collective-extra/blocking",
    cause=Cause.COLLECTIVE_EXTRA,
    guilty_ranks=(1,),
    also_accept=(Cause.COLLECTIVE_DESYNC,),
    also_accept_guilty=((0, 1),),
    note="",
    world_size=4,
    seed=0,
)


def verdict(cause: Cause, *ranks: int, confidence: Confidence = Confidence.PROBABLE) -> Verdict:
    return Verdict(
        cause=cause,
        summary="",
        guilty_ranks=ranks,
        guilty_hosts=(),
        victims="",
        confidence=confidence,
        blocked_on=None,
        where=(),
        evidence=(),
        against=(),
        next_steps=(),
        fix="",
    )


@pytest.mark.parametrize(
    ("said", "is_right"),
    [
        (verdict(Cause.COLLECTIVE_EXTRA, 1), True),
        (verdict(Cause.COLLECTIVE_DESYNC, 0, 1), True),
        (verdict(Cause.COLLECTIVE_SKIPPED, 1), False),
        (verdict(Cause.COLLECTIVE_EXTRA, 0), False),
        (verdict(Cause.COLLECTIVE_EXTRA, 1, 2), False),
        (verdict(Cause.COLLECTIVE_EXTRA, 2, confidence=Confidence.POSSIBLE), False),
        (verdict(Cause.INCONCLUSIVE), False),
    ],
)
def test_with_all_evidence_cause_and_ranks_must_be_accepted_ones(said: Verdict, is_right: bool) -> None:
    assert judge(said, TRUTH)[0] is is_right


@pytest.mark.parametrize(
    ("said", "is_right"),
    [
        (verdict(Cause.INCONCLUSIVE), True),
        (verdict(Cause.COLLECTIVE_STALLED), True),
        (verdict(Cause.COLLECTIVE_EXTRA, 1, confidence=Confidence.CERTAIN), True),
        (verdict(Cause.STUCK_IN_PYTHON, 2, confidence=Confidence.POSSIBLE), True),
        (verdict(Cause.STUCK_IN_PYTHON, 2), False),
        (verdict(Cause.COLLECTIVE_EXTRA, 1, 3, confidence=Confidence.CERTAIN), False),
    ],
)
def test_with_less_it_must_not_blame_an_innocent_for_sure(said: Verdict, is_right: bool) -> None:
    assert judge(said, replace(TRUTH, is_all_there=False))[0] is is_right


def test_truth_as_a_file() -> None:
    fields = json.loads(TRUTH.to_json())
    wanted = {"cause": "collective-extra", "guilty_ranks": [1], "also_accept": ["collective-desync"]}
    assert {key: fields[key] for key in wanted} == wanted
    assert fields["never_blame"] == [2, 3]
    assert set(fields) >= {"group", "seq", "op", "where", "note", "scenario", "dropped", "is_all_there"}


def test_what_is_missing_makes_the_truth_partial() -> None:
    name = "collective-extra/blocking"
    assert truth_of(plan(name, 8)).is_all_there
    assert not truth_of(plan(name, 8, has_wrapped=True)).is_all_there
    assert not truth_of(plan(name, 8, is_active_only=True)).is_all_there
    assert truth_of(plan("stuck-in-python", 8, is_active_only=True)).is_all_there
    partial = truth_of(plan(name, 8, drop="guilty"))
    assert (partial.is_all_there, partial.dropped) == (False, partial.guilty_ranks)


def test_alternatives_are_those_that_the_dumps_leave_open() -> None:
    name = "collective-extra/blocking"
    assert truth_of(plan(name, 8, job="ddp")).also_accept == ()
    assert Cause.COLLECTIVE_DESYNC in truth_of(plan(name, 2, job="ddp")).also_accept
    assert Cause.COLLECTIVE_SHAPE_MISMATCH in truth_of(plan(name, 8, job="ddp", is_json=True)).also_accept
    untyped = truth_of(plan("collective-shape-mismatch/dtype", 8, job="ddp", version="1.4"))
    assert Cause.COLLECTIVE_STALLED in untyped.also_accept
    assert () in untyped.also_accept_guilty


def test_the_line_of_the_fault_is_the_users() -> None:
    where = truth_of(plan("collective-extra/blocking", 8, job="fsdp")).where
    assert where is not None
    assert (where.file, where.function) == ("/workspace/train.py", "log_on_main")
    assert truth_of(plan("collective-extra/blocking", 8, job="fsdp", has_frames=False)).where is None
