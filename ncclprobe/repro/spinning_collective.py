"""`spinning-collective`: a rank waits for a file, and the GPUs of all others spin at 100 percent.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Need, Repro

REPRO = Repro(
    name="spinning-collective",
    summary="a rank waits for a file, and the GPUs of all others spin at 100 percent",
    cause=Cause.STUCK_IN_PYTHON,
    guilty_ranks=(1,),
    needs="an NVIDIA GPU and NCCL; a GPU for each rank, or one that they share",
    expects="rank 1 waits in `read_batch`, its GPU is idle; the others are in an all-reduce, their GPUs at 100 percent",
    program="spinning_collective.py",
    default_ranks=2,
    requires=(Need.GPU,),
)
