"""`wrong-world-size`: a rank is told another world size.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Harm, Launcher, Repro

REPRO = Repro(
    name="wrong-world-size",
    summary="one rank is told another world size than the others",
    cause=Cause.INIT_MISCONFIGURED,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="all ranks wait in init_process_group; WORLD_SIZE of rank 1 is 5, of the others 4",
    program="wrong_world_size.py",
    launcher=Launcher.PLAIN,
    has_line=False,
    is_at_start=True,
    harm=Harm(environment={1: {"WORLD_SIZE": "5"}}),
)
