"""`skipped-collective`: one rank's batch is all padding, and it goes on to the next step past the all-reduce.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="skipped-collective",
    summary="one rank's batch is all padding, and a `continue` takes it past the all-reduce of its gradients",
    cause=Cause.COLLECTIVE_SKIPPED,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 1 waits in the all-gather of the next step, the others in backward for its gradients",
    program="skipped_collective.py",
    default_ranks=3,
    min_ranks=3,
    needs_dumps=True,
)
