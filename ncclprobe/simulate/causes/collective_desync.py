"""Two calls of one group in another order on some ranks: hooks that fire as gradients are ready, loops over a set.

In: a `Scene`, the job in which to plant it. Out: `SCENARIOS`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.simulate import sequence
from ncclprobe.simulate.scenario import Planted, Scenario
from ncclprobe.simulate.scene import Scene
from ncclprobe.simulate.sequence import Change


def _swapped(scene: Scene) -> Planted:
    change = Change(
        spots=sequence.before_another,
        edit=sequence.swap_with_next,
        note="two calls in the other order; the sequences agree again after them",
        also_accept=(Cause.COLLECTIVE_OP_MISMATCH, Cause.COLLECTIVE_SHAPE_MISMATCH),
    )
    return sequence.plant(scene, change)


SCENARIOS = (
    Scenario(
        name="collective-desync/swapped",
        cause=Cause.COLLECTIVE_DESYNC,
        summary="one rank makes two calls in the other order",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_swapped,
    ),
)
