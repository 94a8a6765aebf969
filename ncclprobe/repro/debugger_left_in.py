"""`debugger-left-in`: a `breakpoint()` was left in and is reached on one rank.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="debugger-left-in",
    summary="a `breakpoint()` was left in and is reached on one rank",
    cause=Cause.STUCK_IN_PYTHON,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 1 waits at the prompt of pdb, the others in the all-reduce of the next step",
    program="debugger_left_in.py",
)
