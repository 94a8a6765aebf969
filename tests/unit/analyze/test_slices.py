"""What a set of ranks is: exactly, or not said."""

from collections.abc import Iterable

import pytest

from ncclprobe.analyze.slices import Slices, build_slices
from ncclprobe.model.collectives import ProcessGroup
from ncclprobe.model.job import Rank
from ncclprobe.simulate.layout import Layout, megatron, sharded

WORLD = 64
PER_HOST = 8
TP, PP, EP = 4, 4, 8


def groups_of(layout: Layout) -> list[ProcessGroup]:
    return [ProcessGroup(name=g.name, description=g.description, ranks=tuple(g.ranks)) for g in layout.groups]


def on_hosts(ranks: Iterable[int] = range(WORLD)) -> dict[int, Rank]:
    return {r: Rank(rank=r, host=f"node{r // PER_HOST}", local_rank=r % PER_HOST) for r in ranks}


def slices(
    places: dict[int, Rank] | None = None, groups: list[ProcessGroup] | None = None, *, is_whole: bool = True
) -> Slices:
    """A Megatron job of 64 ranks; no hosts unless given."""
    named = groups_of(megatron(WORLD, TP, PP, EP)) if groups is None else groups
    return build_slices(places or {}, named, range(WORLD), is_whole=is_whole)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (range(8, 16), "all ranks of host node1"),
        ([*range(8, 16), *range(32, 40)], "all ranks of hosts node1, node4"),
        (range(8, 12), "one tensor-parallel group"),
        (range(5, WORLD, 16), "one pipeline group"),
        (range(16, 32), "all ranks of hosts node2, node3"),
        (range(3, WORLD, 8), "local rank 3 of every host"),
    ],
)
def test_with_hosts_the_machine_comes_first(ranks: Iterable[int], text: str) -> None:
    assert slices(on_hosts()).describe(ranks) == text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (range(8, 16), "one expert-parallel group"),
        (range(16, 32), "pipeline stage 1 of 0-3"),
        (range(32, 64), "pipeline stages 2-3 of 0-3"),
        (range(1, 16, 4), "one data-parallel group"),
        (range(0, WORLD, 4), "the first rank of every tensor-parallel group"),
        (range(3, WORLD, 4), "group rank 3 of every tensor-parallel group"),
        ([*range(4), *range(8, 12)], "2 whole tensor-parallel groups"),
        ([s * 16 + t for s in range(4) for t in range(4)], "the first rank of every data-parallel group"),
    ],
)
def test_without_hosts_the_slice_of_parallelism(ranks: Iterable[int], text: str) -> None:
    assert slices().describe(ranks) == text


@pytest.mark.parametrize("ranks", [[], [5], range(WORLD), [1, 2], range(8, 15), [*range(8, 16), 20], [0, 99]])
def test_one_rank_all_ranks_and_what_nearly_fits_are_not_described(ranks: Iterable[int]) -> None:
    assert slices(on_hosts()).describe(ranks) is None


def test_a_rank_whose_host_is_unknown_may_be_on_any_host() -> None:
    known = on_hosts(rank for rank in range(WORLD) if rank != 40)
    assert slices(known, []).describe(range(8, 16)) is None


def test_a_rank_of_unknown_local_number_may_have_any() -> None:
    places = on_hosts() | {40: Rank(rank=40, host="node5")}
    assert slices(places, []).describe(range(3, WORLD, 8)) is None
    assert slices(places, []).describe(range(8, 16)) == "all ranks of host node1"


def test_the_same_local_rank_twice_on_a_host_is_not_one_of_every_host() -> None:
    places = {0: Rank(rank=0, host="a", local_rank=0), 1: Rank(rank=1, host="a", local_rank=0)}
    places |= {r: Rank(rank=r, host="b", local_rank=r) for r in (2, 3)}
    assert build_slices(places, [], range(4), is_whole=True).describe([0, 1]) == "all ranks of host a"
    places[4] = Rank(rank=4, host="a", local_rank=4)
    assert build_slices(places, [], range(5), is_whole=True).describe([0, 1]) is None


def test_where_the_world_is_not_known_a_group_is_still_a_group_but_nothing_is_every() -> None:
    open_world = slices(on_hosts(), is_whole=False)
    assert open_world.describe(range(8, 12)) == "one tensor-parallel group"
    assert open_world.describe(range(0, WORLD, 4)) == "4 whole pipeline groups"
    assert open_world.describe(range(16)) == "4 whole tensor-parallel groups"
    assert open_world.describe(range(16, 24)) == "one expert-parallel group"


def test_every_needs_all_groups_of_the_kind() -> None:
    some = [g for g in groups_of(megatron(WORLD, TP, PP, EP)) if g.ranks != (0, 1, 2, 3)]
    assert slices(groups=some).describe(range(4, WORLD, 4)) is None


def test_groups_that_overlap_have_no_places() -> None:
    groups = [ProcessGroup(name=str(i), description="mesh_tp", ranks=r) for i, r in enumerate([(0, 1), (1, 2)])]
    found = build_slices({}, groups, range(4), is_whole=True)
    assert found.describe([1, 2]) == "one tensor-parallel group"
    assert found.describe([0, 1, 2]) is None


def test_the_dimensions_of_a_device_mesh() -> None:
    found = slices(groups=groups_of(sharded(WORLD, replicas=8)))
    assert found.describe(range(8, 16)) == "one dp_shard group"
    assert found.describe(range(2, WORLD, 8)) == "one dp_replicate group"


def test_a_group_that_megatron_names_in_the_middle_is_known() -> None:
    groups = [ProcessGroup(name="4", description="DATA_PARALLEL_GROUP_WITH_CP", ranks=(12, 14))]
    assert slices(groups=groups).describe([12, 14]) == "one data-parallel-with-CP group"


def test_a_group_of_another_description_is_named_by_it() -> None:
    groups = [ProcessGroup(name="7", description="reward_model", ranks=(1, 5, 6))]
    assert slices(groups=groups).describe([1, 5, 6]) == "all members of one reward_model"
    nameless = [ProcessGroup(name="7", description="undefined", ranks=(1, 5, 6))]
    assert slices(groups=nameless).describe([1, 5, 6]) is None


def test_a_group_told_by_each_member_is_one() -> None:
    told = groups_of(megatron(WORLD, TP, PP, EP))
    assert slices(groups=told * 3) == slices(groups=told[::-1])
