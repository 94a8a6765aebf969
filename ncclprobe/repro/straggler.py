"""`straggler`: one rank is five times slower than the others, and nothing hangs.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="straggler",
    summary="one rank is five times slower than the others, and nothing hangs",
    cause=Cause.PROGRESSING,
    guilty_ranks=(),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="steps go on, slowly: the others wait for rank 1 in every one of them",
    program="straggler.py",
)
