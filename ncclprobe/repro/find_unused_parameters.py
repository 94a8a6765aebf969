"""`find-unused-parameters`: a branch of the model leaves parameters out on one rank, and DDP never sends their bucket.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="find-unused-parameters",
    summary="a branch of the model leaves parameters out on one rank, and DDP never sends their bucket",
    cause=Cause.COLLECTIVE_SKIPPED,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 1 waits in the all-gather after backward, the others in backward for its gradients",
    program="find_unused_parameters.py",
    default_ranks=3,
    min_ranks=3,
    needs_dumps=True,
)
