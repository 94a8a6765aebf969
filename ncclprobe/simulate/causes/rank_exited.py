"""A rank that left early, in good order: fewer batches than the others. It leaves no dump.

In: a `Scene`, the job in which to plant it. Out: `SCENARIOS`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.simulate.calls import Host
from ncclprobe.simulate.scenario import Planted, Scenario
from ncclprobe.simulate.scene import Scene


def _early(scene: Scene) -> Planted:
    rank = scene.any_rank()
    first = next(iter(scene.axes(rank)), None)
    return Planted(
        guilty=(rank,),
        note="it ran out of data, ended and left no dump; dumps alone can only suspect the silent rank",
        programs={rank: [Host.STOP]},
        gone=frozenset({rank}),
        axis=first,
        rank=rank,
        number=0 if first else None,
        also_accept=(Cause.INCONCLUSIVE, Cause.RANK_CRASHED, Cause.STUCK_IN_PYTHON),
    )


SCENARIOS = (
    Scenario(
        name="rank-exited/early",
        cause=Cause.RANK_EXITED,
        summary="a rank ends a step earlier than the others, which wait for it",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_early,
    ),
)
