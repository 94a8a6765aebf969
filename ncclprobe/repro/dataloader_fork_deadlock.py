"""`dataloader-fork-deadlock`: a data loader forks its worker while a thread holds a lock, which stays locked in there.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="dataloader-fork-deadlock",
    summary="a data loader forks its worker while a thread holds a lock, which stays locked in there",
    cause=Cause.STUCK_IN_DATALOADER,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 1 waits for its loader's worker, which waits for a lock; the others wait in the next all-reduce",
    program="dataloader_fork_deadlock.py",
)
