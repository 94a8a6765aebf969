"""Healthy programs: they end, and members of a group agree."""

from collections import Counter, defaultdict

import pytest

from ncclprobe.model.errors import UsageError
from ncclprobe.simulate.clock import NEVER
from ncclprobe.simulate.job import find_kind, find_kinds
from ncclprobe.simulate.pipeline import Backward, Forward, Message, one_forward_one_backward
from tests.unit.simulate.simulated import JOBS, calls_in, job, run_healthy

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 64)
STEPS = range(999, 1002)  # one of them logs


def test_every_kind_is_found() -> None:
    assert tuple(find_kinds()) == JOBS
    with pytest.raises(UsageError, match="horovod"):
        find_kind("horovod")


@pytest.mark.parametrize("needs", [frozenset(), frozenset({"tp"}), frozenset({"pp"})], ids=["any", "tp", "pp"])
@pytest.mark.parametrize("ranks", SIZES)
@pytest.mark.parametrize("kind", JOBS)
def test_a_healthy_job_runs_to_its_end(kind: str, ranks: int, needs: frozenset[str]) -> None:
    programs, runs = run_healthy(job(kind, ranks, needs), STEPS)
    for program, run in zip(programs, runs, strict=True):
        assert len(run.issued) == len(calls_in(program))
        assert NEVER not in run.ended
        assert all(issued < ended for issued, ended in zip(run.issued, run.ended, strict=True))


@pytest.mark.parametrize("ranks", SIZES)
@pytest.mark.parametrize("kind", JOBS)
def test_members_of_a_group_make_the_same_collectives_in_the_same_order(kind: str, ranks: int) -> None:
    made = job(kind, ranks)
    sequences = defaultdict(set)
    for rank in range(ranks):
        in_group = defaultdict(list)
        for call in calls_in(made.program(made.stage(rank), STEPS)):
            if not call.is_p2p:
                in_group[made.layout.group(call.axis, rank).name].append((call.op, call.dtype, call.inputs, call.root))
        for name, calls in in_group.items():
            sequences[name].add(tuple(calls))
    assert {len(found) for found in sequences.values()} == {1}


@pytest.mark.parametrize("ranks", [2, 8, 64])
@pytest.mark.parametrize("kind", ["megatron", "moe"])
def test_every_send_has_its_recv_in_the_same_group(kind: str, ranks: int) -> None:
    made = job(kind, ranks, frozenset({"pp"}))
    sends: Counter[object] = Counter()
    recvs: Counter[object] = Counter()
    for rank in range(ranks):
        for call in calls_in(made.program(made.stage(rank), STEPS)):
            for part in call.parts:
                group = made.layout.group(call.axis, rank)
                peer = group.ranks[made.peer(call.axis, rank, part.peer)]
                ends = (rank, peer) if part.is_send else (peer, rank)
                (sends if part.is_send else recvs)[group.name, ends] += 1
    assert sends
    assert sends == recvs


def test_a_pipeline_of_two_sends_back_in_the_default_group() -> None:
    """So that the two directions have a communicator each, as in Megatron."""
    made = job("moe", 2, frozenset({"pp"}))
    axes = {(call.op, call.axis) for call in calls_in(made.step(0, 1)) if call.is_p2p}
    assert axes == {("send", "pp"), ("recv", "world")}


def test_logging_steps_have_more_calls_than_others() -> None:
    for kind in JOBS:
        made = job(kind, 8)
        every = made.kind.log_every
        counts = [len(made.step(0, number)) for number in range(2 * every)]
        assert [number for number, count in enumerate(counts) if count == max(counts)] == [0, every]


def test_the_schedule_of_the_first_and_the_last_stage() -> None:
    first = list(one_forward_one_backward(0, 2, 2))
    assert first == [
        Forward(),
        (Message(True, 1),),
        Forward(),
        (Message(True, 1), Message(False, 1)),
        Backward(),
        (Message(False, 1),),
        Backward(),
    ]
    last = list(one_forward_one_backward(1, 2, 2))
    assert last == [
        (Message(False, 0),),
        Forward(),
        Backward(),
        (Message(True, 0), Message(False, 0)),
        Forward(),
        Backward(),
        (Message(True, 0),),
    ]


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
def test_every_stage_runs_every_microbatch_both_ways(stages: int) -> None:
    for stage in range(stages):
        actions = list(one_forward_one_backward(stage, stages, 8))
        assert (actions.count(Forward()), actions.count(Backward())) == (8, 8)
