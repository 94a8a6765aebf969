"""`never-joined`: a rank is never started.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Harm, Launcher, Repro

REPRO = Repro(
    name="never-joined",
    summary="one rank is never started; the others wait for it in their set-up",
    cause=Cause.RANK_NEVER_JOINED,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 1 does not exist; the others wait in init_process_group",
    program="never_joined.py",
    launcher=Launcher.PLAIN,
    has_line=False,
    is_at_start=True,
    harm=Harm(absent_ranks=(1,)),
)
