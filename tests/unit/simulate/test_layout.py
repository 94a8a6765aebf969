"""Groups as torch makes, names and numbers them."""

import pytest

from ncclprobe.simulate.layout import Layout, flat, megatron, sharded

# Members of rank 5 in a public dump of a real Megatron job: 16 ranks, tensor 4, data 2, pipeline 2, experts 8.
REAL_RANK_5 = {
    "world": (0, "0", "default_pg", tuple(range(16))),
    "dp": (1, "2", "DATA_PARALLEL_GROUP_WITH_CP", (1, 5)),
    "mp": (4, "34", "MODEL_PARALLEL_GROUP", (4, 5, 6, 7, 12, 13, 14, 15)),
    "tp": (5, "36", "TENSOR_MODEL_PARALLEL_GROUP", (4, 5, 6, 7)),
    "pp": (6, "54", "PIPELINE_MODEL_PARALLEL_GROUP", (5, 13)),
    "emb": (7, "55", "EMBEDDING_GROUP", (5, 13)),
    "tp_dp": (9, "63", "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", tuple(range(8))),
    "tp_cp": (11, "68", "TENSOR_AND_CONTEXT_PARALLEL_GROUP", (4, 5, 6, 7)),
    "ep": (12, "71", "EXPERT_MODEL_PARALLEL_GROUP", tuple(range(8))),
    "etmp": (14, "89", "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", tuple(range(8))),
    "etmpp": (15, "91", "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", tuple(range(16))),
    "edp": (16, "97", "EXPERT_DATA_PARALLEL_GROUP", (5,)),
    "opt": (17, "108", "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", tuple(range(16))),
}


@pytest.mark.parametrize("axis", REAL_RANK_5)
def test_megatron_groups_are_those_of_a_real_job(axis: str) -> None:
    layout = megatron(16, tp=4, pp=2, ep=8)
    group = layout.group(axis, 5)
    assert (layout.axes[axis].pg_id[5], group.name, group.description, tuple(group.ranks)) == REAL_RANK_5[axis]


def test_numbers_of_groups_count_only_a_ranks_own() -> None:
    """A rank of the last stage has no position embedding: from there on its numbers are one lower."""
    layout = megatron(16, tp=4, pp=2, ep=8)
    first, last = layout.axes["tp_dp"].pg_id[5], layout.axes["tp_dp"].pg_id[13]
    assert (first, last) == (9, 8)


@pytest.mark.parametrize(
    "layout",
    [flat(6), sharded(16, 2), sharded(6, 1), megatron(24, 2, 2, 4), megatron(64, 4, 4, 8), megatron(3, 1, 1, 1)],
    ids=lambda layout: f"{layout.world_size}",
)
def test_members_and_places_agree(layout: Layout) -> None:
    assert [group.name for group in layout.groups] == [str(number) for number in range(len(layout.groups))]
    for axis, columns in layout.axes.items():
        for rank in range(layout.world_size):
            if layout.is_member(axis, rank):
                assert layout.group(axis, rank).ranks[columns.member[rank]] == rank
        sizes = {len(layout.groups[index].ranks) for index in set(columns.group) - {-1}}
        assert sizes == {layout.size(axis)}


def test_a_user_made_group_goes_by_its_name() -> None:
    layout = sharded(8, 1)
    assert [group.label for group in layout.groups] == ["default_pg", "mesh_dp", "2"]
    assert [group.label for group in sharded(16, 2).groups][1:3] == ["mesh_dp_replicate"] * 2


def test_ranks_are_written_as_torch_writes_them() -> None:
    layout = megatron(8, 2, 2, 4)
    assert layout.ranks_text(layout.group("pp", 1)) == "[1, 5]"
