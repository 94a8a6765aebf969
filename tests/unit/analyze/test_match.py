"""The first divergence of a group, and what kind it is."""

from array import array
from dataclasses import replace

import pytest

from ncclprobe.analyze.match import Mismatch, find_mismatch
from ncclprobe.analyze.timeline import build_timelines
from ncclprobe.model.collectives import Recording, Signature
from ncclprobe.model.report import Cause
from tests.evidence import dumps, recording, without_rows

STEP = ["all_gather:64", "reduce_scatter:64", "all_reduce:1"]


def mismatch_of(calls: dict[int, list[str]], **first_seq: int) -> Mismatch | None:
    made = {rank: recording(of, first_seq=first_seq.get(f"r{rank}", 1)) for rank, of in calls.items()}
    (timeline,) = build_timelines(dumps(made), len(calls))
    return find_mismatch(timeline)


def test_ranks_in_step_have_no_mismatch() -> None:
    assert mismatch_of(dict.fromkeys(range(4), STEP * 5)) is None


def test_a_rank_behind_is_no_mismatch() -> None:
    assert mismatch_of({0: STEP * 5, 1: STEP * 5, 2: STEP * 4}) is None


def test_an_extra_call_is_told_from_what_follows() -> None:
    found = mismatch_of({0: STEP + ["all_gather:1"] + STEP * 2, **dict.fromkeys((1, 2, 3), STEP * 4)})
    assert found is not None
    assert (found.cause, found.guilty, found.seq) == (Cause.COLLECTIVE_EXTRA, (0,), 4)


def test_a_skipped_call_is_told_from_what_follows() -> None:
    found = mismatch_of({2: STEP + STEP[1:] + STEP * 2, **dict.fromkeys((0, 1, 3), STEP * 4)})
    assert found is not None
    assert (found.cause, found.guilty, found.seq) == (Cause.COLLECTIVE_SKIPPED, (2,), 4)


def test_an_unexpected_call_at_the_end_is_extra_by_the_jobs_own_period() -> None:
    found = mismatch_of({0: STEP * 5 + ["all_gather:1"], **dict.fromkeys((1, 2, 3), STEP * 5 + STEP[:1])})
    assert found is not None
    assert (found.cause, found.guilty, found.seq) == (Cause.COLLECTIVE_EXTRA, (0,), 16)


def test_a_call_from_later_in_the_period_means_one_was_skipped() -> None:
    found = mismatch_of({3: STEP * 5 + STEP[1:2], **dict.fromkeys((0, 1, 2), STEP * 5 + STEP[:1])})
    assert found is not None
    assert (found.cause, found.guilty) == (Cause.COLLECTIVE_SKIPPED, (3,))


def test_a_call_like_a_later_one_but_from_a_line_of_its_own_is_extra() -> None:
    step = ["all_gather:64@5", "reduce_scatter:64@6", "all_gather:64@7"]
    kept = {rank: [*step * 5, step[0], step[1]] for rank in (0, 1, 2)}
    later = mismatch_of({**kept, 3: [*step * 5, step[0], step[2]]})
    found = mismatch_of({**kept, 3: [*step * 5, step[0], "all_gather:64@90"]})
    assert later is not None
    assert found is not None
    assert (later.cause, later.guilty) == (Cause.COLLECTIVE_SKIPPED, (3,))
    assert (found.cause, found.guilty) == (Cause.COLLECTIVE_EXTRA, (3,))


def test_where_all_lines_of_a_rank_are_its_own_they_tell_nothing() -> None:
    step, other = ["all_gather:64@5", "reduce_scatter:64@6"], ["all_gather:64@85", "reduce_scatter:64@86"]
    found = mismatch_of({3: [*other * 5, other[1]], **{rank: [*step * 5, step[0]] for rank in (0, 1, 2)}})
    assert found is not None
    assert (found.cause, found.guilty) == (Cause.COLLECTIVE_SKIPPED, (3,))


def test_a_majority_that_leaves_the_period_as_before_means_the_minority_skipped() -> None:
    evaluation = ["broadcast:5"]
    history = STEP * 4 + evaluation + STEP * 4
    found = mismatch_of({1: history + STEP[:1], **dict.fromkeys((0, 2, 3), history + evaluation)})
    assert found is not None
    assert (found.cause, found.guilty) == (Cause.COLLECTIVE_SKIPPED, (1,))


def test_a_majority_that_leaves_the_period_for_the_first_time_is_a_desync() -> None:
    found = mismatch_of({1: STEP * 5 + STEP[:1], **{r: STEP * 5 + ["broadcast:5"] for r in (0, 2, 3)}})
    assert found is not None
    assert (found.cause, found.guilty) == (Cause.COLLECTIVE_DESYNC, (1,))


def test_other_sizes_from_the_same_line_are_a_shape_mismatch() -> None:
    found = mismatch_of(
        {2: ["all_gather:8@7"] * 9 + ["all_gather:5@7"], **{r: ["all_gather:8@7"] * 10 for r in (0, 1, 3)}}
    )
    assert found is not None
    assert (found.cause, found.guilty) == (Cause.COLLECTIVE_SHAPE_MISMATCH, (2,))


def test_other_ops_without_any_history_are_an_op_mismatch() -> None:
    found = mismatch_of({0: ["broadcast:8"], 1: ["all_reduce:8"], 2: ["all_reduce:8"]})
    assert found is not None
    assert (found.cause, found.guilty, found.has_majority) == (Cause.COLLECTIVE_OP_MISMATCH, (0,), True)


def test_without_a_majority_both_sides_are_named() -> None:
    found = mismatch_of({0: ["broadcast:8"], 1: ["all_reduce:8"]})
    assert found is not None
    assert (found.guilty, found.has_majority) == ((0, 1), False)


def test_most_of_those_heard_is_not_most_of_the_group() -> None:
    made = {0: recording(["broadcast:8"]), 1: recording(["all_reduce:8"]), 2: recording(["all_reduce:8"])}
    (timeline,) = build_timelines(dumps(made), 8)
    found = find_mismatch(timeline)
    assert found is not None
    assert (found.guilty, found.has_majority, timeline.silent) == ((0, 1, 2), False, (3, 4, 5, 6, 7))


def test_a_wrapped_ring_is_compared_only_where_all_still_hold_calls() -> None:
    calls = STEP * 10
    found = mismatch_of({0: calls[4:], 1: calls, 2: calls[9:]}, r0=5, r1=1, r2=10)
    assert found is None


def test_a_divergence_behind_a_wrapped_ring_is_not_invented() -> None:
    assert mismatch_of({0: STEP * 2, 1: STEP * 2, 2: STEP * 2}, r2=20) is None


@pytest.mark.parametrize(
    ("sizes", "op"), [(("3", "5"), "all_to_all"), (("3", "5"), "all_to_allv")], ids=["all_to_all", "all_to_allv"]
)
def test_uneven_shares_of_an_exchange_are_no_mismatch(sizes: tuple[str, str], op: str) -> None:
    assert mismatch_of({0: [f"{op}:{sizes[0]}"], 1: [f"{op}:{sizes[1]}"]}) is None


def test_of_two_ranks_the_one_that_left_out_what_always_came_is_named() -> None:
    found = mismatch_of({0: STEP * 6, 1: STEP * 4 + STEP[1:] + STEP})
    assert found is not None
    assert (found.cause, found.guilty, found.has_majority) == (Cause.COLLECTIVE_SKIPPED, (1,), False)


def test_of_two_ranks_one_more_call_may_be_the_other_ranks_fault() -> None:
    found = mismatch_of({0: STEP * 4 + ["broadcast:5"] + STEP * 2, 1: STEP * 6})
    assert found is not None
    assert (found.cause, found.guilty) == (Cause.COLLECTIVE_DESYNC, (0, 1))


def test_a_call_more_that_the_few_make_as_ever_is_not_extra() -> None:
    """Most left it out together: that may be right."""
    found = mismatch_of({0: STEP * 6, **dict.fromkeys((1, 2, 3), STEP * 4 + STEP[1:] + STEP)})
    assert found is not None
    assert (found.cause, found.guilty) == (Cause.COLLECTIVE_DESYNC, (0,))


def test_of_a_call_left_out_and_two_swapped_the_count_tells() -> None:
    most, few = STEP * 5 + ["a:1", "b:2", "a:1"], STEP * 5 + ["b:2", "a:1"]
    found = mismatch_of({2: few, **dict.fromkeys((0, 1, 3), most)})
    assert found is not None
    assert (found.cause, found.guilty) == (Cause.COLLECTIVE_SKIPPED, (2,))


def test_two_calls_swapped_are_a_desync() -> None:
    most, few = STEP * 5 + ["a:1", "b:2"] + STEP, STEP * 5 + ["b:2", "a:1"] + STEP
    found = mismatch_of({2: few, **dict.fromkeys((0, 1, 3), most)})
    assert found is not None
    assert (found.cause, found.guilty) == (Cause.COLLECTIVE_DESYNC, (2,))


def test_few_that_each_left_out_another_call_are_one_cause() -> None:
    found = mismatch_of(
        {
            4: STEP * 3 + STEP[1:] + STEP,
            5: STEP * 3 + STEP[2:] + STEP,
            **dict.fromkeys(range(4), STEP * 5),
        }
    )
    assert found is not None
    assert (found.cause, found.guilty) == (Cause.COLLECTIVE_SKIPPED, (4, 5))


USUAL = ["all_reduce:2@97"]
NEW = ["all_reduce:3@146"]


def test_a_line_that_nobody_else_has_used_makes_a_call_extra() -> None:
    """The history is too short for a habit."""
    found = mismatch_of({1: USUAL * 2 + NEW, **dict.fromkeys((0, 2, 3), USUAL * 3)})
    assert found is not None
    assert (found.cause, found.guilty) == (Cause.COLLECTIVE_EXTRA, (1,))


def test_a_line_new_to_the_few_may_be_where_all_should_be() -> None:
    found = mismatch_of({1: USUAL * 3, **dict.fromkeys((0, 2, 3), USUAL * 2 + NEW)})
    assert found is not None
    assert (found.cause, found.guilty) == (Cause.COLLECTIVE_DESYNC, (1,))


def test_a_hole_in_one_ring_does_not_hide_what_comes_after() -> None:
    holed = without_rows(recording(STEP * 5 + ["broadcast:5"]), 1)
    made = {0: holed, **{rank: recording(STEP * 5 + STEP[:1]) for rank in (1, 2)}}
    (timeline,) = build_timelines(dumps(made), 3)
    found = find_mismatch(timeline)
    assert found is not None
    assert (found.seq, found.guilty) == (16, (0,))


def test_a_divergence_at_the_oldest_call_may_have_begun_before() -> None:
    found = mismatch_of({0: STEP[1:] * 2, **dict.fromkeys((1, 2, 3), STEP * 2)}, r0=20, r1=20, r2=20, r3=20)
    assert found is not None
    assert not found.has_past


def gathers(*roots: int, claims: bool = False, rank: int = 0) -> Recording:
    """A gather per root; `claims`: the rank takes itself for the root of the last one too."""
    made = recording(["gather:8"] * len(roots), ranks=range(4))
    sizes = [((8,),) * 4 if root == rank or (claims and at == len(roots) - 1) else () for at, root in enumerate(roots)]
    signatures = (
        Signature("gather", ((8,),), ((8,),) * 4, ("Float",), ("Float",) * 4),
        Signature("gather", ((8,),), (), ("Float",), ()),
    )
    return replace(made, signatures=signatures, signature_of=array("I", (0 if outputs else 1 for outputs in sizes)))


def of_gathers(made: dict[int, Recording]) -> Mismatch | None:
    (timeline,) = build_timelines(dumps(made), 4)
    return find_mismatch(timeline)


def test_roots_may_take_turns() -> None:
    assert of_gathers({rank: gathers(0, 1, 2, 3, rank=rank) for rank in range(4)}) is None


def test_a_second_root_is_the_one_that_never_was_before() -> None:
    found = of_gathers({rank: gathers(0, 0, 0, 0, rank=rank, claims=rank == 3) for rank in range(4)})
    assert found is not None
    assert (found.cause, found.guilty, found.seq, found.is_open) == (Cause.COLLECTIVE_SHAPE_MISMATCH, (3,), 4, False)


def test_of_two_roots_without_a_past_both_are_suspects() -> None:
    found = of_gathers({rank: gathers(0, rank=rank, claims=rank == 3) for rank in range(4)})
    assert found is not None
    assert (found.guilty, found.is_open) == ((0, 3), True)


def test_without_any_root_the_usual_one_is_wrong() -> None:
    found = of_gathers({rank: gathers(0, 0, 0, 9, rank=rank) for rank in range(4)})
    assert found is not None
    assert (found.guilty, found.is_open) == ((0,), False)


def test_an_absent_member_may_be_the_root() -> None:
    assert of_gathers({rank: gathers(0, 0, 0, 3, rank=rank) for rank in range(3)}) is None


def exchange(rank: int, sent: list[int], got: list[int]) -> Recording:
    made = recording(["all_to_all:8"], ranks=range(3))
    sizes = [tuple((share,) for share in shares) for shares in (sent, got)]
    return replace(made, signatures=(Signature("all_to_all", *sizes, ("Float",) * 3, ("Float",) * 3),))


def of_exchange(made: dict[int, Recording]) -> Mismatch | None:
    (timeline,) = build_timelines(dumps(made), 3)
    return find_mismatch(timeline)


def test_splits_that_fit_are_no_mismatch() -> None:
    assert of_exchange({rank: exchange(rank, [1, 2, 3], [rank + 1] * 3) for rank in range(3)}) is None


def test_the_rank_whose_splits_fit_no_peer_is_named() -> None:
    made = {rank: exchange(rank, [1, 2, 3], [rank + 1] * 3) for rank in range(3)}
    found = of_exchange({**made, 1: exchange(1, [2, 2, 4], [2, 2, 2])})
    assert found is not None
    assert (found.cause, found.guilty, found.is_open) == (Cause.COLLECTIVE_SHAPE_MISMATCH, (1,), False)


def test_of_two_ranks_whose_splits_do_not_fit_either_may_be_wrong() -> None:
    made = {rank: exchange(rank, [1, 2, 3], [rank + 1] * 3) for rank in range(3)}
    found = of_exchange({**made, 1: exchange(1, [1, 2, 4], [2, 2, 2])})
    assert found is not None
    assert (found.guilty, found.is_open) == ((1, 2), True)


def test_of_whole_tensors_only_the_sum_tells() -> None:
    found = of_exchange({rank: exchange(rank, [6], [6 + (rank == 1)]) for rank in range(3)})
    assert found is not None
    assert (found.guilty, found.is_open) == ((0, 1, 2), True)
