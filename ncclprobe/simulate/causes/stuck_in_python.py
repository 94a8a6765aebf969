"""A rank outside every collective: in its data loader, in a log call, in anything. The dumps cannot say in what.

In: a `Scene`, the job in which to plant it. Out: `SCENARIOS`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.simulate.calls import Call, Host
from ncclprobe.simulate.scenario import CannotPlantError, Planted, Scenario
from ncclprobe.simulate.scene import Ops, Scene, call_at, places

_ELSEWHERE = (
    Cause.STUCK_IN_DATALOADER,
    Cause.STUCK_IN_CHECKPOINT,
    Cause.STUCK_IN_PREPROCESSING,
    Cause.STUCK_IN_EVALUATION,
    Cause.STUCK_IN_LOGGING,
    Cause.STUCK_IN_COMPILE,
    Cause.STUCK_ON_LOCK,
)
_TRIES = 50


def _between_steps(scene: Scene) -> Planted:
    """All earlier calls have ended: a second rank of the stage can stand there too, and is missed as much."""
    rank = scene.any_rank()
    alike = [r for r in range(scene.job.layout.world_size) if scene.job.stage(r) == scene.job.stage(rank)]
    ranks = scene.minority(alike, rank, of=len(alike))
    return _stop(scene, ranks, 0, "never leave the data loader")


def _in_the_step(scene: Scene) -> Planted:
    rank = scene.any_rank()
    calls = [at for at, op in enumerate(scene.first_step(rank)) if isinstance(op, Call)]
    return _stop(scene, (rank,), scene.rng.choice(calls), "stop in the middle of a step, between two calls")


def _before_the_log(scene: Scene) -> Planted:
    """The others make a call that the last steps did not have: a near miss of a call that is one too many."""
    rank = scene.any_rank()
    program = scene.first_step(rank)
    place = next(at for at, op in enumerate(program) if isinstance(op, Call) and op.site.startswith("metrics"))
    return _stop(scene, (rank,), place, "stop before the metrics that all ranks gather every few steps")


def _among_experts(scene: Scene) -> Planted:
    """Sizes differ between ranks and are right: a near miss of a shape mismatch."""
    for _ in range(_TRIES):
        rank = scene.any_rank()
        program = scene.program(rank)
        found = [place for place in places(program, "ep") if call_at(program, place).is_uneven]
        found = [place for place in found if place < len(scene.first_step(rank))]
        if found and scene.job.layout.size("ep") > 1:
            return _stop(scene, (rank,), scene.rng.choice(found), "stop before an uneven all_to_all")
    raise CannotPlantError


def _in_the_pipeline(scene: Scene) -> Planted:
    """Sends and recvs wait on every stage, all for this rank: a near miss of point-to-point calls that do not pair."""
    rank = scene.any_rank()
    program = scene.first_step(rank)
    found = [at for at, op in enumerate(program) if isinstance(op, Call) and op.is_p2p]
    return _stop(scene, (rank,), scene.rng.choice(found), "stop before a send or recv of the pipeline")


def _stop(scene: Scene, ranks: tuple[int, ...], place: int, what: str) -> Planted:
    program = scene.program(ranks[0])
    axis, number = _missed(program, place)
    return Planted(
        guilty=ranks,
        note=what,
        programs={rank: [*scene.program(rank)[:place], Host.STOP] for rank in ranks},
        axis=axis,
        rank=ranks[0],
        number=number,
        shown=call_at(program, places(program, axis)[number]) if axis and number is not None else None,
        also_accept=_ELSEWHERE,
    )


def _missed(program: Ops, place: int) -> tuple[str | None, int | None]:
    """The first collective that does not come any more."""
    for at in range(place, len(program)):
        op = program[at]
        if isinstance(op, Call) and not op.is_p2p:
            return op.axis, places(program, op.axis).index(at)
    return None, None


SCENARIOS = (
    Scenario(
        name="stuck-in-python/data-loader",
        cause=Cause.STUCK_IN_PYTHON,
        summary="a rank, or two, never begins the next step",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_between_steps,
    ),
    Scenario(
        name="stuck-in-python/mid-step",
        cause=Cause.STUCK_IN_PYTHON,
        summary="a rank stops between two calls of a step; the others run ahead as far as they can",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_in_the_step,
    ),
    Scenario(
        name="stuck-in-python/before-logging",
        cause=Cause.STUCK_IN_PYTHON,
        summary="a rank stops before a rare call that all others make",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_before_the_log,
        is_at_log=True,
    ),
    Scenario(
        name="stuck-in-python/experts",
        cause=Cause.STUCK_IN_PYTHON,
        summary="a rank stops among all_to_alls whose sizes differ between ranks",
        jobs=("moe",),
        plant=_among_experts,
        min_ranks=4,
    ),
    Scenario(
        name="stuck-in-python/pipeline",
        cause=Cause.STUCK_IN_PYTHON,
        summary="a rank of a pipeline stops; sends and recvs wait on every stage",
        jobs=("megatron", "moe"),
        plant=_in_the_pipeline,
        needs=frozenset({"pp"}),
    ),
)
