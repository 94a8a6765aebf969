"""Nothing hangs: a healthy job whose dumps were not taken at one moment. One look cannot prove it.

In: a `Scene`, the job in which to plant it. Out: `SCENARIOS`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.simulate.scenario import Planted, Scenario
from ncclprobe.simulate.scene import Scene


def _healthy(scene: Scene) -> Planted:
    return Planted(
        guilty=(),
        note="every rank is at work; the dumps were taken one after the other",
        is_running=True,
        also_accept=(Cause.INCONCLUSIVE,),
    )


SCENARIOS = (
    Scenario(
        name="progressing/skewed",
        cause=Cause.PROGRESSING,
        summary="a healthy job; stages of a pipeline issue different numbers of calls",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_healthy,
    ),
    Scenario(
        name="progressing/logging",
        cause=Cause.PROGRESSING,
        summary="the same in a step with calls that the last ones did not have",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_healthy,
        is_at_log=True,
    ),
)
