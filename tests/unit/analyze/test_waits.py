"""Who waits for whom."""

from ncclprobe.analyze.timeline import build_timelines
from ncclprobe.analyze.waits import Waits, find_waits
from ncclprobe.model.collectives import ProcessGroup
from tests.evidence import dumps, recording

PAIR = ProcessGroup(name="1", description="tp", ranks=(2, 3))


def waits_of(*of_groups: dict[int, object]) -> Waits:
    made = [sourced for group in of_groups for sourced in dumps(group)]  # type: ignore[arg-type]
    return find_waits(build_timelines(made, 4))


def test_a_rank_that_has_not_come_is_the_root() -> None:
    waits = waits_of({0: recording(["a"] * 5), 1: recording(["a"] * 5), 2: recording(["a"] * 4, completed=4)})
    assert [root.ranks for root in waits.roots] == [(2,)]
    assert not waits.roots[0].is_cycle


def test_ranks_missing_from_the_same_call_are_one_root() -> None:
    behind = recording(["a"] * 4, completed=4)
    waits = waits_of({0: recording(["a"] * 5), 1: behind, 2: behind})
    assert [root.ranks for root in waits.roots] == [(1, 2)]


def test_all_in_the_same_call_is_a_stall_without_a_root() -> None:
    waits = waits_of({rank: recording(["a"] * 5) for rank in range(4)})
    assert waits.roots == ()
    assert waits.stalled == ((0, 5),)


def test_a_member_that_lags_behind_what_its_peers_finished_is_the_root() -> None:
    waits = waits_of(
        {
            0: recording(["a"] * 6, completed=5),
            1: recording(["a"] * 6, completed=3),
            2: recording(["a"] * 6, completed=5),
        }
    )
    assert [root.ranks for root in waits.roots] == [(1,)]


def test_a_finished_job_waits_for_nothing() -> None:
    waits = waits_of({rank: recording(["a"] * 5, completed=5) for rank in range(3)})
    assert (waits.heads, waits.roots, waits.stalled) == ({}, (), ())
