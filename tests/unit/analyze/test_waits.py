"""Who waits for whom, and who waits for nobody."""

from array import array
from collections.abc import Mapping
from dataclasses import replace

from ncclprobe.analyze.counters import find_damaged, trust
from ncclprobe.analyze.frontier import Frontier, find_frontiers
from ncclprobe.analyze.heads import find_heads
from ncclprobe.analyze.timeline import build_timelines
from ncclprobe.analyze.waits import Reason, Waits, find_waits
from ncclprobe.model.collectives import GroupStatus, Recording
from tests.evidence import dumps, mixed, recording, without_rows


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


def of_damaged(recordings: Mapping[int, Recording]) -> Waits:
    made = dumps(recordings)
    heads, frontiers = find_heads(made), trust(find_frontiers(made))
    damaged = find_damaged(made, heads, frontiers)
    return find_waits(heads, build_timelines(made, 4), frontiers, frozenset(recordings), damaged=damaged)


WAITING = recording(["a"] * 5, ranks=range(3))
CUT = without_rows(recording(["a"] * 5, completed=5, ranks=range(3)), 4)


def counted(made: Recording, issued: int, ended: int) -> Recording:
    """With the recorder's own counters, which damage to entries leaves alone."""
    status = GroupStatus(last_enqueued=issued, last_started=None, last_completed=ended)
    return replace(made, statuses={"0": status}, group_of_id={"0": 0})


def test_a_call_that_a_damaged_dump_lacks_may_have_been_made() -> None:
    waits = of_damaged({0: WAITING, 1: WAITING, 2: CUT})
    assert (waits.roots, waits.unheard) == ((), (2,))


def test_the_same_call_missing_from_a_whole_dump_makes_a_root() -> None:
    waits = of_damaged({0: WAITING, 1: WAITING, 2: replace(CUT, is_whole=True)})
    assert [(root.ranks, root.reason) for root in waits.roots] == [((2,), Reason.ABSENT)]


def test_an_empty_damaged_dump_is_no_root() -> None:
    waits = of_damaged({0: WAITING, 1: WAITING, 2: replace(recording([], ranks=range(3)), is_whole=False)})
    assert (waits.roots, waits.unheard) == ((), (2,))


def test_counters_of_a_damaged_dump_still_tell_that_a_rank_has_not_come() -> None:
    waits = of_damaged({0: WAITING, 1: WAITING, 2: counted(CUT, issued=4, ended=4)})
    assert [root.ranks for root in waits.roots] == [(2,)]
    assert waits.unheard == (2,)


def test_a_damaged_rank_whose_counters_say_that_it_waits_somewhere_is_no_root() -> None:
    other = mixed(("b", (2, 3), "all_reduce", 7))
    busy = replace(
        other,
        is_whole=False,
        groups=(*WAITING.groups, *other.groups),
        group_of=array("H", [1]),
        is_completed=bytearray([1]),
        statuses={
            "0": GroupStatus(last_enqueued=4, last_started=None, last_completed=4),
            "1": GroupStatus(last_enqueued=8, last_started=None, last_completed=7),
        },
        group_of_id={"0": 0, "1": 1},
    )
    assert of_damaged({0: WAITING, 1: WAITING, 2: busy}).roots == ()


def test_a_root_that_a_damaged_dump_shows_is_named_with_less_confidence() -> None:
    lost = without_rows(recording(["a"] * 5, ranks=range(4)), 1)
    behind = recording(["a"] * 4, completed=4, ranks=range(4))
    whole = recording(["a"] * 5, ranks=range(4))
    waits = of_damaged({0: whole, 1: lost, 2: behind, 3: whole})
    assert ([root.ranks for root in waits.roots], waits.unheard) == ([(2,)], (1,))


def test_counters_that_ended_more_than_they_issued_count_messages_too() -> None:
    group = ("0", tuple(range(3)))
    one_kind, two_kinds = Frontier(issued=5, ended=4), Frontier(issued=5, ended=900)
    assert trust({group: {0: one_kind}}) == {group: {0: one_kind}}
    assert trust({group: {0: one_kind, 1: two_kinds}}) == {}


def moving(op: str, was_moving: bool) -> Waits:
    ahead = counted(recording([op] * 6, completed=5, ranks=range(2)), issued=6, ended=5)
    behind = counted(recording([], ranks=range(2)), issued=3, ended=3)
    made = dumps({0: without_rows(ahead, 0, 1, 2, 3, 4), 1: behind})
    made = tuple(replace(sourced, record=replace(sourced.record, is_whole=True)) for sourced in made)
    heads = find_heads(made)
    return find_waits(heads, build_timelines(made, 2), find_frontiers(made), frozenset((0, 1)), was_moving=was_moving)


def test_counters_beyond_what_another_rank_has_issued_are_of_a_later_moment() -> None:
    assert moving("all_reduce", was_moving=True).has_moved
    assert not moving("all_reduce", was_moving=False).has_moved


def test_a_coalesced_block_of_collectives_is_a_call_to_wait_in() -> None:
    block = recording(["all_reduce:8", "coalesced:0"], ranks=range(2))
    block.is_p2p[1] = 0
    heads = find_heads(dumps({0: block, 1: recording(["all_reduce:8"], completed=1, ranks=range(2))}))
    assert {rank: head.call.seq for rank, head in heads.items()} == {0: 2}
