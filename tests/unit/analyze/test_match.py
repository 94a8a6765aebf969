"""The first divergence of a group, and what kind it is."""

import pytest

from ncclprobe.analyze.match import Mismatch, find_mismatch, find_period
from ncclprobe.analyze.timeline import build_timelines
from ncclprobe.model.report import Cause
from tests.evidence import dumps, recording

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


@pytest.mark.parametrize(
    ("history", "period"),
    [
        ([1, 2, 3] * 4, 3),
        ([1] * 5, 1),
        ([9, 9, 1, 2, 1, 2, 1, 2], 2),
        ([1, 2, 3, 4], None),
        ([], None),
        ([1, 2, 1, 2], None),
    ],
)
def test_the_period_is_the_shortest_that_repeats_three_times(history: list[int], period: int | None) -> None:
    assert find_period(history) == period
