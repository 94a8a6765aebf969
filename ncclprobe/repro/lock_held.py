"""`lock-held`: a thread fails between taking a lock and giving it back.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="lock-held",
    summary="a thread fails between taking a lock and giving it back",
    cause=Cause.STUCK_ON_LOCK,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 1 waits for a lock that nobody gives back; the others wait in the all-reduce of the next step",
    program="lock_held.py",
)
