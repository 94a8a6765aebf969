"""`slow-checkpoint`: rank 0 saves a checkpoint, and the others are not told to wait that long.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import JobState, Repro

REPRO = Repro(
    name="slow-checkpoint",
    summary="rank 0 saves a checkpoint, and the others are not told to wait that long",
    cause=Cause.TIMEOUT_TOO_SHORT,
    guilty_ranks=(0,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="the others time out at a barrier while rank 0 still writes shards; the job ends",
    program="slow_checkpoint.py",
    does=JobState.ENDED,
)
