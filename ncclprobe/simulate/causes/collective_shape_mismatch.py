"""The same call on other data: a shorter last batch, a rank without mixed precision.

In: a `Scene`, the job in which to plant it. Out: `SCENARIOS`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.simulate import sequence
from ncclprobe.simulate.scenario import Planted, Scenario
from ncclprobe.simulate.scene import Scene
from ncclprobe.simulate.sequence import Change


def _size(scene: Scene) -> Planted:
    change = Change(spots=sequence.even_in_the_run, edit=sequence.resize, note="the same call with another size")
    return sequence.plant(scene, change)


def _dtype(scene: Scene) -> Planted:
    """Nothing follows: without call sites it may as well be one more call."""
    change = Change(
        spots=sequence.at_the_loss,
        edit=sequence.retype,
        note="the same call with another type; all wait for the result",
        is_told_by_type=True,
        also_accept_without_frames=(Cause.COLLECTIVE_EXTRA,),
    )
    return sequence.plant(scene, change)


SCENARIOS = (
    Scenario(
        name="collective-shape-mismatch/size",
        cause=Cause.COLLECTIVE_SHAPE_MISMATCH,
        summary="one rank's tensor is smaller; it goes on issuing",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_size,
    ),
    Scenario(
        name="collective-shape-mismatch/dtype",
        cause=Cause.COLLECTIVE_SHAPE_MISMATCH,
        summary="one rank's loss has another type, and all wait",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_dtype,
    ),
)
