"""A collective that only some ranks make: a check, or a metric under `if rank == ...`.

In: a `Scene`, the job in which to plant it. Out: `SCENARIOS`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.simulate import sequence
from ncclprobe.simulate.scenario import Planted, Scenario
from ncclprobe.simulate.scene import Scene, places
from ncclprobe.simulate.sequence import Change


def _continuing(scene: Scene) -> Planted:
    change = Change(
        spots=sequence.in_the_run, edit=sequence.insert, note="a call that the others do not make, in the middle"
    )
    return sequence.plant(scene, change)


def _blocking(scene: Scene) -> Planted:
    change = Change(
        spots=places,
        edit=sequence.insert_and_wait,
        note="a call that the others do not make; the host reads its result and goes no further",
        also_accept_without_frames=(Cause.COLLECTIVE_SHAPE_MISMATCH, Cause.COLLECTIVE_OP_MISMATCH),
    )
    return sequence.plant(scene, change)


SCENARIOS = (
    Scenario(
        name="collective-extra/continuing",
        cause=Cause.COLLECTIVE_EXTRA,
        summary="one rank makes one more call than the others and goes on issuing",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_continuing,
    ),
    Scenario(
        name="collective-extra/blocking",
        cause=Cause.COLLECTIVE_EXTRA,
        summary="one rank logs a reduced value alone, and waits for it",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_blocking,
    ),
)
