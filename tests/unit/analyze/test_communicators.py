"""Communicators joined over processes, and global ranks from the largest."""

from dataclasses import replace

from ncclprobe.analyze.communicators import Communicator, communicator_of, communicators, ranks_by_process
from ncclprobe.model.log import CommEvent, LogEvent, OpTrace


def event(process: int, rank: int, size: int, what: str = "init-complete", **fields: object) -> LogEvent:
    """Process `p` runs on GPU `p % 4` of host `p // 4`, with pid 100 + p."""
    given = {"comm": f"0x{process + 16:x}", "comm_id": "0xabc", "cuda_device": process % 4, "bus_id": None, **fields}
    fact = CommEvent(event=what, rank=rank, size=size, **given)  # type: ignore[arg-type]
    return LogEvent(line=1, quote="", what=fact, host=f"node{process // 4}", pid=100 + process)


def world(size: int = 8, **fields: object) -> list[LogEvent]:
    return [event(p, p, size, what, **fields) for p in range(size) for what in ("init-start", "init-complete")]


def only(events: list[LogEvent]) -> Communicator:
    (found,) = communicators(events)
    return found


def process(number: int) -> tuple[str, int]:
    return f"node{number // 4}", 100 + number


def test_members_are_joined_by_the_id() -> None:
    found = only(world())
    assert (found.id, found.size, sorted(found.members)) == ("0xabc", 8, list(range(8)))
    assert found.started == found.completed == frozenset(range(8))
    assert (found.aborted, found.destroyed, found.unseen) == (frozenset(), frozenset(), ())
    assert found.members[5].host == "node1"
    assert [found.members[number].rank for number in range(8)] == list(range(8))


def test_who_never_entered_and_who_did_not_complete() -> None:
    events = [one for one in world() if one.pid != 103 and not (one.pid == 105 and one.what.event == "init-complete")]  # type: ignore[union-attr]
    found = only(events)
    assert found.unseen == (3,)
    assert found.completed == frozenset(range(8)) - {3, 5}


def test_ends() -> None:
    ends = {0: "abort-start", 1: "abort-complete", 2: "destroy-complete", 3: "revoke"}
    found = only([*world(), *(event(p, p, 8, what, comm_id=None) for p, what in ends.items())])
    assert (found.aborted, found.destroyed) == (frozenset({0, 1, 3}), frozenset({2}))


def test_ranks_of_processes_are_those_in_the_largest() -> None:
    pairs = [event(p, p // 4, 2, comm="0x99", comm_id=f"0x{p % 4}") for p in range(8)]
    shuffled = [*pairs, *world()]
    assert ranks_by_process(shuffled) == {process(p): p for p in range(8)}
    members = {one.id: one.members for one in communicators(shuffled)}
    assert (members["0x1"][1].rank, members["0x1"][0].rank) == (5, 1)


def test_groups_of_a_larger_world_give_no_ranks() -> None:
    halves = [event(p, p % 4, 4, comm_id=f"0x{p // 4}") for p in range(8)]
    assert ranks_by_process(halves) == {}
    assert [one.members[0].rank for one in communicators(halves)] == [None, None]


def test_a_second_communicator_of_all_is_no_contradiction() -> None:
    again = [event(p, p, 8, comm="0x77", comm_id="0xdef") for p in range(8)]
    assert ranks_by_process([*world(), *again])[process(6)] == 6


def test_the_same_ranks_in_another_order_are_one() -> None:
    turned = [event(p, 7 - p, 8, comm="0x77", comm_id="0xdef") for p in range(8)]
    assert ranks_by_process([*world(), *turned]) == {}


def test_a_job_started_again_has_both_its_processes() -> None:
    again = [replace(one, pid=(one.pid or 0) + 1_000) for one in world(comm_id="0xdef")]
    ranks = ranks_by_process([*world(), *again])
    assert (ranks[process(5)], ranks["node1", 1_105]) == (5, 5)


def test_a_known_world_size_is_a_condition() -> None:
    assert ranks_by_process(world(), world_size=8) != {}
    assert ranks_by_process(world(), world_size=16) == {}


def test_nothing() -> None:
    assert ranks_by_process([]) == {}
    assert communicators([]) == ()


def splits(p: int, color: int, number: int | None) -> list[LogEvent]:
    """What 2.23 and later print: no id, but the parent's pointer."""
    fields = {"comm": f"0x{p + 64:x}", "comm_id": None, "parent": f"0x{p + 16:x}", "color": color, "split": number}
    return [event(p, p // 2, 4, what, **fields) for what in ("init-start", "init-complete")]


def test_splits_are_joined_by_parent_number_and_color() -> None:
    events = [*world(), *(one for p in range(8) for one in splits(p, p % 2, 1))]
    _, even, odd = communicators(events)
    assert [member.rank for member in even.members.values()] == [0, 2, 4, 6]
    assert [member.rank for member in odd.members.values()] == [1, 3, 5, 7]
    assert odd.id == "0xabc split 1 color 1"


def test_splits_of_2_23_are_counted() -> None:
    events = [*world(), *(one for p in range(8) for one in splits(p, p % 2, None))]
    assert len(communicators(events)) == 3


def test_a_split_of_an_unknown_parent_stands_alone() -> None:
    found = communicators([one for p in range(4) for one in splits(p, 0, 1)])
    assert [len(one.members) for one in found] == [1] * 4


def test_a_pointer_used_again_is_another_communicator() -> None:
    ended = [event(p, p, 8, "destroy-complete", comm_id=None) for p in range(8)]
    later = world(comm_id="0xdef")
    first, second = communicators([*world(), *ended, *later])
    assert (first.id, second.id, len(first.destroyed), len(second.destroyed)) == ("0xabc", "0xdef", 8, 0)


def test_without_ids_the_world_is_joined_by_size() -> None:
    found = only([event(p, p, 8, comm_id=None) for p in range(8)])
    assert len(found.members) == 8
    assert found.members[7].rank == 7


def test_without_ids_groups_are_left_apart() -> None:
    pairs = [event(p, p % 2, 2, comm_id=None, comm="0x99") for p in range(8)]
    found = communicators([*(event(p, p, 8, comm_id=None) for p in range(8)), *pairs])
    assert [len(one.members) for one in found] == [8] + [1] * 8
    assert ranks_by_process(pairs) == {}


def test_the_communicator_of_a_trace() -> None:
    ended = [event(p, p, 8, "destroy-complete", comm_id=None) for p in range(8)]
    found = communicators([*world(), *ended, *world(comm_id="0xdef")])
    trace = OpTrace(host="node0", pid=102, comm="0x12", comm_id=None, rank=2, size=8, cuda_device=2, signatures=())
    assert communicator_of(trace, found) is found[-1]
    assert communicator_of(replace(trace, pid=5), found) is None
    assert communicator_of(replace(trace, size=4), found) is None
