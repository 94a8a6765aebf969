"""A collective that some ranks leave out: an unused layer, a `continue` that only they take.

In: a `Scene`, the job in which to plant it. Out: `SCENARIOS`.
"""

from dataclasses import replace

from ncclprobe.model.report import Cause
from ncclprobe.simulate import sequence
from ncclprobe.simulate.scenario import Planted, Scenario
from ncclprobe.simulate.scene import Scene, call_at, places
from ncclprobe.simulate.sequence import Change


def _continuing(scene: Scene) -> Planted:
    change = Change(
        spots=sequence.before_another,
        edit=sequence.leave_out,
        note="a call that only the others make, in the middle",
        also_accept_without_frames=(Cause.COLLECTIVE_EXTRA,),
    )
    return sequence.plant(scene, change)


def _blocking(scene: Scene) -> Planted:
    change = Change(
        spots=sequence.at_the_loss,
        edit=sequence.leave_out_with_wait,
        note="the others wait in the call that was left out, these ranks in a later one",
    )
    return sequence.plant(scene, change)


def _other_group(scene: Scene) -> Planted:
    """Nobody makes a wrong call: the ranks that skipped one wait in another group for those that did not."""
    planted = _blocking(scene)
    program = scene.program(planted.rank)
    place = sequence.at_the_loss(program, "metrics")[0]
    waiting = {peer for rank in planted.guilty for peer in scene.job.layout.group("shard", rank).ranks}
    return replace(
        planted,
        number=places(program, "metrics").index(place),
        shown=call_at(program, place),
        note="the others wait in the call that was left out, these ranks in the next one, which is in another group",
        also_accept=(*planted.also_accept, Cause.GROUP_ORDER_DEADLOCK),
        also_accept_guilty=(*planted.also_accept_guilty, tuple(sorted(waiting))),
    )


SCENARIOS = (
    Scenario(
        name="collective-skipped/continuing",
        cause=Cause.COLLECTIVE_SKIPPED,
        summary="one rank leaves a call out and goes on issuing",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_continuing,
    ),
    Scenario(
        name="collective-skipped/blocking",
        cause=Cause.COLLECTIVE_SKIPPED,
        summary="one rank leaves out the reduction of the loss that the others wait for",
        jobs=("ddp", "megatron", "moe"),
        plant=_blocking,
    ),
    Scenario(
        name="collective-skipped/other-group",
        cause=Cause.COLLECTIVE_SKIPPED,
        summary="the same, and its next call is in another process group",
        jobs=("fsdp",),
        plant=_other_group,
    ),
)
