"""`stopped`: a rank is stopped by SIGSTOP.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="stopped",
    summary="one rank is stopped by a signal (state T); the others wait for it",
    cause=Cause.STUCK_IN_PYTHON,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 1 is in state T and uses no CPU; the others wait in the all-reduce of that step",
    program="stopped.py",
)
