"""`exception-swallowed`: a rank catches an exception and goes on.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="exception-swallowed",
    summary="one rank catches an exception and goes on with the next step, one collective short",
    cause=Cause.COLLECTIVE_SKIPPED,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 1 waits in the all-reduce of the next step, the others in the all-gather of this one",
    program="exception_swallowed.py",
    needs_dumps=True,
)
