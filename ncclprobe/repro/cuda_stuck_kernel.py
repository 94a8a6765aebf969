"""`cuda-stuck-kernel`: a kernel of one rank does not end.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Need, Repro

REPRO = Repro(
    name="cuda-stuck-kernel",
    summary="a kernel of one rank does not end",
    cause=Cause.STUCK_IN_CUDA,
    guilty_ranks=(1,),
    needs="an NVIDIA GPU and NCCL; a GPU for each rank, or one that they share",
    expects="rank 1 waits in `torch.cuda.synchronize`, the others in an all-reduce; all GPUs are at 100 percent",
    program="cuda_stuck_kernel.py",
    default_ranks=2,
    requires=(Need.GPU,),
)
