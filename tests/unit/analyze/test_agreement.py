"""Which calls of two members can be one call: every op torch records, a row each."""

import pytest

from ncclprobe.analyze.agreement import comparable, ends_block, tokens_of
from ncclprobe.analyze.timeline import UNKNOWN, build_timelines
from ncclprobe.model.collectives import Signature, Sizes
from tests.evidence import dumps, mixed, recording


def call(op: str, inputs: Sizes, outputs: Sizes, dtype: str = "Float", out: str | None = None) -> Signature:
    return Signature(op, inputs, outputs, (dtype,) * len(inputs), (out or dtype,) * len(outputs))


LIST = ((8,),) * 4
UNDEFINED = ((0,),)  # the empty tensor that stands for no list
MATCHING = {
    "all_reduce": (call("all_reduce", ((4, 8),), ((4, 8),)), call("all_reduce", ((32,),), ((32,),))),
    "all_reduce_coalesced": (
        call("allreduce_coalesced", ((4,), (2,)), ((4,), (2,))),
        call("allreduce_coalesced", ((2, 2), (2,)), ((2, 2), (2,))),
    ),
    "broadcast": (call("broadcast", ((8,),), ((8,),)), call("broadcast", ((8,),), ((8,),))),
    "all_gather into a list or one tensor": (
        call("all_gather", ((8,),), LIST),
        call("_all_gather_base", ((8,),), ((32,),)),
    ),
    "all_gather_into_tensor under both names": (
        call("all_gather_into_tensor", ((8,),), ((32,),)),
        call("_all_gather_base", ((8,),), ((4, 8),)),
    ),
    "uneven all_gather": (call("all_gather_v", ((8,),), ((8,), (5,))), call("all_gather_v", ((5,),), ((8,), (5,)))),
    "reduce_scatter from a list or one tensor": (
        call("reduce_scatter", LIST, ((8,),)),
        call("_reduce_scatter_base", ((32,),), ((8,),)),
    ),
    "uneven reduce_scatter": (
        call("reduce_scatter_v", ((8,), (5,)), ((8,),)),
        call("reduce_scatter_v", ((8,), (5,)), ((5,),)),
    ),
    "uneven all_to_all": (call("all_to_all", ((9, 4),), ((5, 4),)), call("all_to_all", ((1, 4),), ((5, 4),))),
    "all_to_all with and without splits": (
        call("all_to_all", ((8,),), ((8,),)),
        call("all_to_allv", ((3,),), ((13,),)),
    ),
    "gather": (call("gather", ((8,),), LIST), call("gather", ((8,),), UNDEFINED, out="Undefined")),
    "gather of gloo": (call("gather", ((8,),), LIST), call("gather", ((8,),), ())),
    "scatter of NCCL, whose root has the list as output": (
        call("scatter", ((8,),), LIST),
        call("scatter", ((8,),), UNDEFINED, out="Undefined"),
    ),
    "scatter of gloo": (call("scatter", LIST, ((8,),)), call("scatter", (), ((8,),))),
    "barrier": (call("all_reduce_barrier", ((1,),), ((1,),)), call("all_reduce_barrier", ((1,),), ((1,),))),
    "an op nobody knows": (call("all_reduce_sparse", ((8,),), ((8,),)), call("all_reduce_sparse", ((8,),), ((8,),))),
}
DIFFERENT = {
    "op": (call("all_reduce", ((8,),), ((8,),)), call("broadcast", ((8,),), ((8,),))),
    "size of all_reduce": (call("all_reduce", ((8,),), ((8,),)), call("all_reduce", ((7,),), ((7,),))),
    "type": (call("all_reduce", ((8,),), ((8,),)), call("all_reduce", ((8,),), ((8,),), "BFloat16")),
    "one of many tensors": (
        call("allreduce_coalesced", ((4,), (2,)), ((4,), (2,))),
        call("allreduce_coalesced", ((2,), (4,)), ((2,), (4,))),
    ),
    "size of all_gather": (call("all_gather", ((8,),), LIST), call("_all_gather_base", ((8,),), ((24,),))),
    "size of reduce_scatter": (
        call("reduce_scatter", LIST, ((8,),)),
        call("_reduce_scatter_base", ((28,),), ((7,),)),
    ),
    "type of all_to_all": (call("all_to_all", ((8,),), ((8,),)), call("all_to_all", ((8,),), ((8,),), "Half")),
    "size of gather": (call("gather", ((8,),), LIST), call("gather", ((7,),), UNDEFINED, out="Undefined")),
    "size of scatter": (call("scatter", ((8,),), LIST), call("scatter", ((7,),), UNDEFINED, out="Undefined")),
    "an op nobody knows": (call("all_reduce_sparse", ((8,),), ((8,),)), call("all_reduce_sparse", ((9,),), ((9,),))),
}


@pytest.mark.parametrize(("one", "other"), MATCHING.values(), ids=MATCHING)
def test_calls_that_can_be_one_call_agree(one: Signature, other: Signature) -> None:
    assert comparable(one) == comparable(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_calls_that_cannot_do_not(one: Signature, other: Signature) -> None:
    assert comparable(one) != comparable(other)


@pytest.mark.parametrize("op", ["coalesced", "ALLGATHER_coalesced", "REDUCE_SCATTER_coalesced"])
def test_what_closes_a_block(op: str) -> None:
    assert ends_block(op)


@pytest.mark.parametrize("op", ["allreduce_coalesced", "reduce_scatter_tensor_coalesced", "all_gather"])
def test_calls_on_lists_of_tensors_close_none(op: str) -> None:
    assert not ends_block(op)


GROUP = ("dp", (0, 1))


def block(seq: int, *ops: str) -> list[tuple]:  # type: ignore[type-arg]
    """Calls of one number, and what closes them: torch 2.8 and later."""
    return [(*GROUP, op, seq) for op in (*ops, "ALLGATHER_coalesced")]


def tokens(*of_rank: list[tuple]) -> list[list[int]]:  # type: ignore[type-arg]
    made = {rank: mixed(*calls) for rank, calls in enumerate(of_rank)}
    (timeline,) = build_timelines(dumps(made), 2)
    return [list(of_rank) for of_rank in tokens_of(timeline.tracks.values()).values()]


FIRST = [(*GROUP, "all_reduce", 1)]


def test_blocks_of_the_same_calls_agree_and_of_other_calls_do_not() -> None:
    one, same, other = (
        [*FIRST, *block(2, *ops)]
        for ops in (("_broadcast_oop:8", "_broadcast_oop:5"),) * 2 + (("_broadcast_oop:8",) * 2,)
    )
    assert tokens(one, same)[0] == tokens(one, same)[1]
    assert tokens(one, other)[0] != tokens(one, other)[1]


def test_where_torch_recorded_only_the_end_of_blocks_nothing_inside_is_compared() -> None:
    new, old = tokens([*FIRST, *block(2, "_broadcast_oop:8", "_broadcast_oop:5")], [*FIRST, *block(2)])
    assert new == old


def test_a_block_that_the_ring_may_have_cut_is_unknown() -> None:
    ring, whole = tokens(block(2, "_broadcast_oop:8"), [*FIRST, *block(2, "_broadcast_oop:8", "_broadcast_oop:5")])
    assert ring == [UNKNOWN]
    assert UNKNOWN not in whole


def test_types_are_compared_only_where_all_dumps_name_them() -> None:
    typed = recording(["all_reduce:8"] * 3, ranks=range(2))
    untyped = recording(["all_reduce:8"] * 3, ranks=range(2))
    object.__setattr__(
        untyped, "signatures", tuple(Signature(s.op, s.input_sizes, s.output_sizes, (), ()) for s in untyped.signatures)
    )
    (timeline,) = build_timelines(dumps({0: typed, 1: untyped}), 2)
    one, other = tokens_of(timeline.tracks.values()).values()
    assert one == other
