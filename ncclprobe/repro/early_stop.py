"""`early-stop`: one rank decides by itself to stop training and leaves the loop.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="early-stop",
    summary="one rank decides by itself to stop training and leaves the loop",
    cause=Cause.COLLECTIVE_SKIPPED,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 1 waits in the barrier after the loop, the others in backward for its gradients",
    program="early_stop.py",
    default_ranks=3,
    min_ranks=3,
    needs_dumps=True,
)
