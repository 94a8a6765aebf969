"""`heartbeat-alive`: a thread sends heartbeats while the step never ends.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="heartbeat-alive",
    summary="a thread sends heartbeats while the step never ends",
    cause=Cause.STUCK_IN_PYTHON,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="all ranks beat; rank 1 waits for a file that never comes, the others in the all-reduce of that step",
    program="heartbeat_alive.py",
)
