"""`exited-early`: a rank leaves in good order.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import JobState, Repro

REPRO = Repro(
    name="exited-early",
    summary="one rank stops early and leaves in good order; the others go on",
    cause=Cause.RANK_EXITED,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 1 has exited with status 0; the others lose it, or wait in the all-reduce of the next step",
    program="exited_early.py",
    does=JobState.ENDED,
    has_line=False,
)
