"""`rank0-preprocessing`: rank 0 prepares the data, and waits for the lock file of a job that was killed.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="rank0-preprocessing",
    summary="rank 0 prepares the data, and waits for the lock file of a job that was killed",
    cause=Cause.STUCK_IN_PREPROCESSING,
    guilty_ranks=(0,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 0 waits in `build_index`, the others at a barrier",
    program="rank0_preprocessing.py",
)
