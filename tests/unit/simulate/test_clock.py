"""Virtual time: who waits for whom, and for how long."""

import pytest

from ncclprobe.simulate import clock
from ncclprobe.simulate.calls import Call, Host, Part, Program
from ncclprobe.simulate.clock import LAUNCH_DEPTH, NEVER, Broken, Run
from ncclprobe.simulate.layout import flat, megatron

A = Call(axis="world", op="all_reduce", inputs=((8,),), outputs=((8,),), site="loss")
B = Call(axis="world", op="all_reduce", inputs=((9,),), outputs=((9,),), site="loss")
ASYNC = Call(axis="world", op="all_reduce", inputs=((8,),), outputs=((8,),), site="loss", is_async=True)
BROADCAST = Call(axis="world", op="broadcast", inputs=((8,),), outputs=((8,),), site="loss", root=0)


def run(*programs: Program, broken: Broken | None = None) -> list[Run]:
    return clock.run(flat(len(programs)), programs, broken or Broken())


def ended(runs: list[Run]) -> list[list[bool]]:
    return [[time_ns != NEVER for time_ns in run.ended] for run in runs]


def test_a_collective_ends_when_all_have_issued_it() -> None:
    assert ended(run([A], [A])) == [[True], [True]]
    assert ended(run([A], [])) == [[False], []]


def test_the_host_runs_ahead_until_it_waits() -> None:
    assert ended(run([A, A, A, Host.SYNC, A], [A])) == [[True, False, False], [True]]
    assert ended(run([A, Host.SYNC, A], [A, Host.STOP, A])) == [[True, False], [True]]


def test_the_launch_queue_is_finite() -> None:
    runs = run([A] * 500, [])
    assert len(runs[0].issued) == LAUNCH_DEPTH


def test_different_calls_at_one_place_end_nowhere_and_all_behind_them_wait() -> None:
    assert ended(run([A, A], [B, A], [A, A])) == [[False, False]] * 3


def test_calls_of_a_stalled_network_end_nowhere() -> None:
    broken = Broken(calls=frozenset({(0, -1, -1, 1)}))
    assert ended(run([A, A, A], [A, A, A], broken=broken)) == [[True, False, False]] * 2


def test_a_stopped_gpu_lags_behind_peers_that_finish_the_call() -> None:
    broken = Broken(gpus={1: 1})
    assert ended(run(*[[A, A, A]] * 3, broken=broken)) == [
        [True, True, False],
        [True, False, False],
        [True, True, False],
    ]


def test_the_root_of_a_broadcast_is_done_before_the_others_come() -> None:
    assert ended(run([BROADCAST, A], [])) == [[True, False], []]
    assert ended(run([], [BROADCAST, A])) == [[], [False, False]]


def test_asynchronous_calls_hold_up_only_who_waits_for_them() -> None:
    """Rank 1 never makes the first call on the rows, so only those who wait for it are held up on the columns."""
    layout = megatron(4, tp=2, pp=1, ep=2)
    row = Call(axis="tp", op="all_reduce", inputs=((8,),), outputs=((8,),), site="loss", is_async=True)
    column = Call(axis="dp", op="all_reduce", inputs=((8,),), outputs=((8,),), site="loss")
    free: list[Program] = [[row, column], [column], [row, column], [row, column]]
    assert ended(clock.run(layout, free, Broken()))[0] == [False, True]
    waiting: list[Program] = [[row, Host.WAIT_ASYNC, column], [column], [row, column], [row, column]]
    assert ended(clock.run(layout, waiting, Broken()))[0] == [False, False]


def p2p(op: str, peer: int, *more: Part) -> Call:
    part = Part(op == "send", peer, ((4,),), "Float")
    return Call(axis="pp", op=op, site="pp.p2p", parts=(part, *more), is_batch=bool(more))


@pytest.mark.parametrize(
    ("first", "second", "ends"),
    [
        ([p2p("send", 1)], [p2p("recv", 0)], True),
        ([p2p("send", 1)], [p2p("send", 0)], False),
        ([p2p("send", 1), p2p("recv", 1)], [p2p("recv", 0), p2p("send", 0)], True),
        ([p2p("send", 1), p2p("recv", 1)], [p2p("send", 0), p2p("recv", 0)], False),
        ([p2p("send", 1, p2p("recv", 1).parts[0])], [p2p("send", 0, p2p("recv", 0).parts[0])], True),
        ([p2p("send", 1, p2p("recv", 1).parts[0])], [p2p("send", 0)], False),
    ],
    ids=["pair", "two sends", "in order", "both send first", "both in one batch", "a part is missing"],
)
def test_sends_pair_with_recvs(first: list[Call], second: list[Call], ends: bool) -> None:
    layout = megatron(2, tp=1, pp=2, ep=1)
    runs = clock.run(layout, [first, second], Broken())
    assert all(ended(runs)[0]) is ends


def test_time_goes_on_from_call_to_call_and_is_the_same_every_time() -> None:
    programs = [[A, ASYNC, Host.WAIT_ASYNC, A, Host.SYNC, A]] * 3
    runs = run(*programs)
    assert runs == run(*programs)
    for each in runs:
        assert list(each.issued) == sorted(each.issued)
        assert list(each.ended) == sorted(each.ended)
    assert runs[0].issued[3] > runs[0].ended[2]  # the host waited
    assert runs[0].issued[2] < runs[0].ended[0]  # and before that it did not
