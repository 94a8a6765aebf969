"""Sets of ranks, checked against what they say of each rank."""

from itertools import product

import pytest

from ncclprobe.model.source import RankSet
from ncclprobe.parse.rank_sets import NOBODY, both, either, only, others

SETS = [NOBODY, only([0]), only([0, 2]), only([1, 3]), others(only([0])), others(only([1, 2])), None]
RANKS = range(5)


def members(ranks: RankSet | None) -> set[int]:
    return {rank for rank in RANKS if ranks is None or ranks.admits(rank, None)}


@pytest.mark.parametrize(("one", "two"), list(product(SETS, SETS)))
def test_of_one_kind_they_combine_exactly(one: RankSet | None, two: RankSet | None) -> None:
    assert members(both(one, two)) == members(one) & members(two)
    assert members(either(one, two)) == members(one) | members(two)


@pytest.mark.parametrize("ranks", SETS[:-1])
def test_a_complement_is_exact(ranks: RankSet) -> None:
    assert members(others(ranks)) == set(RANKS) - members(ranks)
    assert others(None) is None


def test_ranks_below_0_are_nobodys() -> None:
    assert only([-1]) == NOBODY
    assert only([-1, 0]) == only([0])


def test_global_and_local_ranks_do_not_mix() -> None:
    first, local_first = only([0]), only([0], is_local=True)
    assert both(first, local_first) == local_first
    assert either(first, local_first) is None
    assert either(NOBODY, local_first) == local_first
    assert both(NOBODY, local_first) == NOBODY
