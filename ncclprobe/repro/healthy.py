"""`healthy`: nothing is wrong, for comparison.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="healthy",
    summary="nothing is wrong, for comparison",
    cause=Cause.PROGRESSING,
    guilty_ranks=(),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="steps go on",
    program="healthy.py",
)
