"""`mismatched-logging`: rank 0 alone logs a metric through a collective.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="mismatched-logging",
    summary="rank 0 alone logs a metric through a collective; the others go on to the next step",
    cause=Cause.COLLECTIVE_EXTRA,
    guilty_ranks=(0,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 0 waits in an all-gather under `if rank == 0`, the others in the all-reduce of the next step",
    program="mismatched_logging.py",
)
