"""Sends and recvs that no recorder holds: what two ranks' stacks tell, and what those of more do not."""

from dataclasses import replace

import pytest

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.frames import Frame
from ncclprobe.model.report import Cause, Confidence, Verdict
from tests.evidence import both_looks, dumps, evidence, in_backward, in_collective, processes, recording, stacks

SEND, RECV = in_collective("send", 7), in_collective("recv", 8)
REDUCE = in_collective("all_reduce", 20)


def verdict_of(*of_rank: tuple[Frame, ...], **more: object) -> Verdict:
    looks = both_looks(dict(enumerate(of_rank)))
    return analyze(evidence(stacks=looks, processes=processes(range(len(of_rank)), len(of_rank)), **more)).verdict


@pytest.mark.parametrize("calling", [SEND, RECV])
@pytest.mark.parametrize("elsewhere", [REDUCE, in_backward(20)])
def test_the_rank_that_is_in_another_call_owes_the_counterpart(
    calling: tuple[Frame, ...], elsewhere: tuple[Frame, ...]
) -> None:
    verdict = verdict_of(calling, elsewhere)
    assert (verdict.cause, verdict.guilty_ranks, verdict.victims) == (Cause.P2P_MISMATCH, (1,), "0")
    assert verdict.confidence is Confidence.PROBABLE
    assert (verdict.where[0].rank, verdict.where[0].line) == (1, 20)


def test_both_owe_a_recv_where_both_send() -> None:
    verdict = verdict_of(SEND, SEND)
    assert (verdict.cause, verdict.guilty_ranks) == (Cause.P2P_MISMATCH, (0, 1))


def test_a_send_and_a_recv_belong_together() -> None:
    assert verdict_of(SEND, RECV).guilty_ranks == ()


def test_of_three_ranks_nobody_knows_the_peer() -> None:
    assert verdict_of(SEND, REDUCE, REDUCE).cause is not Cause.P2P_MISMATCH


def test_a_rank_that_moves_owes_nothing() -> None:
    moving = stacks({0: SEND, 1: REDUCE}, 1) + stacks({0: SEND, 1: in_collective("all_reduce", 21)}, 2)
    assert analyze(evidence(stacks=moving, processes=processes(range(2), 2))).verdict.guilty_ranks == ()


def test_a_rank_in_a_send_of_gloo_is_not_blamed_for_an_empty_recorder() -> None:
    """The recorder of rank 0 shows no outstanding call, since its send is in none."""
    calls = {0: ["all_reduce:1"] * 5, 1: ["all_reduce:1"] * 6}
    made = {rank: recording(of, ranks=range(2), completed=5) for rank, of in calls.items()}
    of_nccl = analyze(evidence(recordings=dumps(made))).verdict
    of_gloo = analyze(evidence(recordings=dumps({r: replace(m, backends=("gloo",)) for r, m in made.items()}))).verdict
    assert (of_nccl.cause, of_nccl.guilty_ranks) == (Cause.STUCK_IN_PYTHON, (0,))
    assert (of_gloo.cause, of_gloo.guilty_ranks) == (Cause.INCONCLUSIVE, ())
