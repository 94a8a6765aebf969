"""`gil-held`: a thread is in a C function that keeps the interpreter lock.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="gil-held",
    summary="a thread is in a C function that keeps the interpreter lock",
    cause=Cause.STUCK_ON_LOCK,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="a thread of rank 1 holds the interpreter lock, all else of it stands; the others wait in an all-reduce",
    program="gil_held.py",
)
