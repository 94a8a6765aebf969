"""Another op where the others do theirs: `reduce` on one branch, `all_reduce` on the other.

In: a `Scene`, the job in which to plant it. Out: `SCENARIOS`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.simulate import sequence
from ncclprobe.simulate.scenario import Planted, Scenario
from ncclprobe.simulate.scene import Scene
from ncclprobe.simulate.sequence import Change


def _continuing(scene: Scene) -> Planted:
    change = Change(spots=sequence.in_the_run, edit=sequence.replace_op, note="another op in place of the others' one")
    return sequence.plant(scene, change)


def _blocking(scene: Scene) -> Planted:
    """Nothing follows, so that one more call, or one less, explains it as well."""
    change = Change(
        spots=sequence.at_the_loss,
        edit=sequence.replace_op,
        note="another op in place of the others' one; all wait for the result",
        also_accept=(Cause.COLLECTIVE_EXTRA,),
    )
    return sequence.plant(scene, change)


SCENARIOS = (
    Scenario(
        name="collective-op-mismatch/continuing",
        cause=Cause.COLLECTIVE_OP_MISMATCH,
        summary="one rank runs another op at one call and goes on issuing",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_continuing,
    ),
    Scenario(
        name="collective-op-mismatch/blocking",
        cause=Cause.COLLECTIVE_OP_MISMATCH,
        summary="one rank reduces the loss where the others all-reduce it, and all wait",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_blocking,
    ),
)
