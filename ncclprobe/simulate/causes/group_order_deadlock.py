"""Process groups used in different orders: each rank holds what the next one waits for.

In: a `Scene`, the job in which to plant it. Out: `SCENARIOS`.
"""

from collections.abc import Sequence

from ncclprobe.model.report import Cause
from ncclprobe.simulate.scenario import Planted, Scenario
from ncclprobe.simulate.scene import Ops, Scene, call_at, places


def _ring(scene: Scene) -> Planted:
    """Two ranks of different rows and columns reduce over their row before their column: four ranks form a ring."""
    layout = scene.job.layout
    row, other_row = _two_rows(scene)
    column, other_column = sorted(scene.rng.sample(range(layout.size("tp")), 2))
    swapped = (row[other_column], other_row[column])
    ring = sorted((row[column], row[other_column], other_row[column], other_row[other_column]))
    program = scene.program(ring[0])
    waited = _layernorm(program)
    return Planted(
        guilty=tuple(ring),
        note=f"ranks {swapped[0]} and {swapped[1]} reduce over their tensor group before their data group",
        programs={rank: _layernorm_first(scene.program(rank)) for rank in swapped},
        axis="tp",
        rank=ring[0],
        number=places(program, "tp").index(waited),
        shown=call_at(program, waited),
    )


def _two_rows(scene: Scene) -> tuple[Sequence[int], Sequence[int]]:
    """Two tensor groups of one stage."""
    layout = scene.job.layout
    rank = scene.any_rank()
    peers = layout.group("dp", rank).ranks
    chosen = sorted(scene.rng.sample(range(len(peers)), 2))
    first, second = (layout.group("tp", peers[index]).ranks for index in chosen)
    return first, second


def _layernorm_first(program: Ops) -> Ops:
    at = _layernorm(program)
    grads = next(place for place in places(program, "dp") if call_at(program, place).site == "dp.grads")
    return [*program[:grads], program[at], *program[grads:at], *program[at + 1 :]]


def _layernorm(program: Ops) -> int:
    return next(place for place in places(program, "tp") if call_at(program, place).site == "tp.layernorm")


def _pair(scene: Scene) -> Planted:
    """Two groups with the same two members: one of the two uses them the other way round."""
    rank = scene.any_rank()
    pair = tuple(scene.job.layout.group("tp", rank).ranks)
    program = scene.program(rank)
    router = next(place for place in places(program, "tp_cp") if call_at(program, place).site == "moe.router")
    before = max(place for place in places(program, "tp") if place < router)
    program[before], program[router] = program[router], program[before]
    return Planted(
        guilty=pair,
        note=f"rank {rank} uses its two groups of the same members in the other order",
        programs={rank: program},
        axis="tp",
        rank=rank,
        number=places(scene.program(rank), "tp").index(before),
        shown=call_at(scene.program(rank), before),
    )


SCENARIOS = (
    Scenario(
        name="group-order-deadlock/ring",
        cause=Cause.GROUP_ORDER_DEADLOCK,
        summary="four ranks of two tensor groups and two data groups wait for one another in a ring",
        jobs=("megatron", "moe"),
        plant=_ring,
        needs=frozenset({"tp", "dp"}),
        min_ranks=4,
    ),
    Scenario(
        name="group-order-deadlock/pair",
        cause=Cause.GROUP_ORDER_DEADLOCK,
        summary="two ranks use two groups in different order",
        jobs=("moe",),
        plant=_pair,
        needs=frozenset({"tp"}),
        max_ranks=31,
    ),
)
