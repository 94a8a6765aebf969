"""A GPU that stops inside a collective which its peers still finish; its host goes on enqueuing.

In: a `Scene`, the job in which to plant it. Out: `SCENARIOS`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.simulate.clock import Broken
from ncclprobe.simulate.scenario import CannotPlantError, Planted, Scenario
from ncclprobe.simulate.scene import Ops, Scene, call_at, index_of, places

_TRIES = 50


def _plant(scene: Scene) -> Planted:
    """In a group of which others remain that show it: they have finished what this rank has not."""
    for _ in range(_TRIES):
        rank = scene.any_rank()
        program = scene.program(rank)
        found = [place for axis in scene.axes(rank) for place in places(program, axis)]
        found = [place for place in found if place < len(scene.first_step(rank)) and _is_told(program, place)]
        if found:
            return _plant_at(scene, rank, program, scene.rng.choice(found))
    raise CannotPlantError


def _is_told(program: Ops, place: int) -> bool:
    """The root of a broadcast is done early by right, and only where more follows do the peers wait for this rank."""
    call = call_at(program, place)
    return call.op not in ("broadcast", "gather") and len(places(program[place:], call.axis)) > 1


def _plant_at(scene: Scene, rank: int, program: Ops, place: int) -> Planted:
    call = call_at(program, place)
    group = scene.job.layout.group(call.axis, rank).ranks
    alike = [peer for peer in group if scene.job.stage(peer) == scene.job.stage(rank)]
    ranks = scene.minority(alike, rank, of=len(group)) if len(alike) == len(group) else (rank,)
    return Planted(
        guilty=ranks,
        note="their GPUs stop inside this call, which their peers finish",
        broken=Broken(gpus={stopped: index_of(program, place) for stopped in ranks}),
        axis=call.axis,
        rank=rank,
        number=places(program, call.axis).index(place),
        shown=call,
        also_accept=(Cause.GPU_FAULT,),
    )


SCENARIOS = (
    Scenario(
        name="stuck-in-cuda/lagging",
        cause=Cause.STUCK_IN_CUDA,
        summary="a GPU stops in a collective that its peers finish, while its host enqueues on",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_plant,
    ),
)
