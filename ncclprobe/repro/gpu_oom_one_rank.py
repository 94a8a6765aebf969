"""`gpu-oom-one-rank`: a batch of one rank does not fit into the memory of its GPU.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import JobState, Need, Repro

REPRO = Repro(
    name="gpu-oom-one-rank",
    summary="a batch of one rank does not fit into the memory of its GPU",
    cause=Cause.RANK_CRASHED,
    guilty_ranks=(1,),
    needs="an NVIDIA GPU and NCCL; a GPU for each rank, or one that they share",
    expects="rank 1 raises torch.OutOfMemoryError, the others are in the all-reduce of that step; the job ends",
    program="gpu_oom_one_rank.py",
    default_ranks=2,
    does=JobState.ENDED,
    requires=(Need.GPU,),
)
