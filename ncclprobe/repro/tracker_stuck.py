"""`tracker-stuck`: rank 0 reports a metric to a tracker whose server does not answer.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="tracker-stuck",
    summary="rank 0 reports a metric to a tracker whose server does not answer",
    cause=Cause.STUCK_IN_LOGGING,
    guilty_ranks=(0,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 0 waits in `Tracker.log`, the others in the all-reduce of the next step",
    program="tracker_stuck.py",
)
