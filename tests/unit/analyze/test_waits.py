"""Who waits for whom, and who waits for nobody."""

from collections.abc import Mapping

from ncclprobe.analyze.frontier import find_frontiers
from ncclprobe.analyze.heads import find_heads
from ncclprobe.analyze.timeline import build_timelines
from ncclprobe.analyze.waits import Reason, Waits, find_waits
from ncclprobe.model.collectives import Recording
from tests.evidence import dumps, mixed, recording


def waits_of(recordings: Mapping[int, Recording]) -> Waits:
    made = dumps(recordings)
    return find_waits(find_heads(made), build_timelines(made, 4), find_frontiers(made), frozenset(recordings))


def roots_of(recordings: Mapping[int, Recording]) -> list[tuple[tuple[int, ...], Reason]]:
    return [(root.ranks, root.reason) for root in waits_of(recordings).roots]


def test_a_rank_that_has_not_come_is_the_root() -> None:
    waiting, behind = recording(["a"] * 5), recording(["a"] * 4, completed=4)
    assert roots_of({0: waiting, 1: waiting, 2: behind}) == [((2,), Reason.ABSENT)]


def test_ranks_missing_from_the_same_call_are_one_root() -> None:
    waiting, behind = recording(["a"] * 5), recording(["a"] * 4, completed=4)
    assert roots_of({0: waiting, 1: behind, 2: behind}) == [((1, 2), Reason.ABSENT)]


def test_a_live_rank_with_an_empty_dump_waits_for_nothing_and_is_the_root() -> None:
    waiting = recording(["a"] * 5, ranks=range(3))
    assert roots_of({0: waiting, 1: waiting, 2: recording([], ranks=range(3))}) == [((2,), Reason.ABSENT)]


def test_a_rank_without_a_dump_is_unheard_not_guilty() -> None:
    waits = waits_of({0: recording(["a"] * 5, ranks=range(3)), 1: recording(["a"] * 5, ranks=range(3))})
    assert (waits.roots, waits.unheard) == ((), (2,))


def test_all_in_the_same_call_is_a_stall_without_a_root() -> None:
    waits = waits_of({rank: recording(["a"] * 5) for rank in range(4)})
    assert waits.roots == ()
    assert [key.seq for key in waits.stalled] == [5]


def test_a_member_that_lags_behind_what_its_peers_finished_is_the_root() -> None:
    ahead, lagging = recording(["a"] * 6, completed=5), recording(["a"] * 6, completed=3)
    assert roots_of({0: ahead, 1: lagging, 2: ahead}) == [((1,), Reason.STALLED)]


def test_the_root_of_a_broadcast_may_be_done_before_the_others() -> None:
    done, waiting = recording(["broadcast"] * 6, completed=6), recording(["broadcast"] * 6, completed=5)
    assert roots_of({0: done, 1: waiting, 2: waiting}) == []


def test_a_finished_job_waits_for_nothing() -> None:
    waits = waits_of({rank: recording(["a"] * 5, completed=5) for rank in range(3)})
    assert (waits.heads, waits.roots, waits.stalled) == ({}, (), ())


def test_victims_of_victims_lead_to_the_one_root() -> None:
    waits = waits_of(
        {
            0: mixed(("dp", (0, 2), "all_reduce", 7)),
            2: mixed(("tp", (2, 3), "all_gather", 4)),
            3: mixed(("tp", (2, 3), "all_gather", 3, True)),
        }
    )
    assert [(root.ranks, root.reason) for root in waits.roots] == [((3,), Reason.ABSENT)]
    assert waits.victims(waits.roots[0]) == (0, 2)


def test_groups_in_opposite_orders_are_a_cycle() -> None:
    a, b = ("a", (0, 1), "all_reduce", 1), ("b", (0, 1), "all_reduce", 1)
    assert roots_of({0: mixed(a), 1: mixed(b)}) == [((0, 1), Reason.CYCLE)]


def test_a_send_waits_for_the_rank_that_does_not_receive() -> None:
    assert roots_of({0: mixed(("pp", (0, 1), "send 0->1", 1)), 1: mixed(("pp", (0, 1), "recv 1<-0", 1, True))}) == [
        ((1,), Reason.ABSENT)
    ]


def test_a_send_and_its_recv_that_both_wait_are_a_stall() -> None:
    waits = waits_of({0: mixed(("pp", (0, 1), "send 0->1", 1)), 1: mixed(("pp", (0, 1), "recv 1<-0", 1))})
    assert (waits.roots, len(waits.stalled)) == ((), 1)


def test_two_ranks_that_both_send_first_are_a_cycle() -> None:
    assert roots_of({0: mixed(("pp", (0, 1), "send 0->1", 1)), 1: mixed(("pp", (0, 1), "send 1->0", 1))}) == [
        ((0, 1), Reason.CYCLE)
    ]


def test_of_a_finished_batch_the_inner_entries_that_stay_scheduled_do_not_count() -> None:
    batch = [("pp", (0, 1), "send 0->1", 5), ("pp", (0, 1), "coalesced", 5, True)]
    assert waits_of({0: mixed(*batch), 1: mixed(("pp", (0, 1), "recv 1<-0", 5, True))}).heads == {}


def test_all_parts_of_a_batch_must_be_served() -> None:
    group = ("pp", (0, 1, 2))
    waits = waits_of(
        {
            1: mixed((*group, "recv 1<-0", 5), (*group, "send 1->2", 5), (*group, "coalesced", 5)),
            0: mixed((*group, "send 0->1", 5)),
            2: mixed((*group, "recv 2<-1", 4, True)),
        }
    )
    assert [(root.ranks, root.reason) for root in waits.roots] == [((2,), Reason.ABSENT)]
