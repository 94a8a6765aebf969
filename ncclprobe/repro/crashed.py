"""`crashed`: a rank crashes in C code.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Launcher, Repro

REPRO = Repro(
    name="crashed",
    summary="one rank crashes in C code and dies; the others wait for its word",
    cause=Cause.RANK_CRASHED,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 1 is gone, its log ends with the crash; the others wait in the store, not in a collective",
    program="crashed.py",
    launcher=Launcher.PLAIN,
)
