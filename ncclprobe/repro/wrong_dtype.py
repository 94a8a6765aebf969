"""`wrong-dtype`: one rank joins an all-reduce in float64, the others in float32.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="wrong-dtype",
    summary="one rank joins an all-reduce in float64, the others in float32",
    cause=Cause.COLLECTIVE_SHAPE_MISMATCH,
    guilty_ranks=(1,),
    needs="nothing special; with gloo the sizes are such that it hangs, with others it would abort a process",
    expects="rank 1 waits for the rest, the others are done and in the next all-reduce; NCCL may end with wrong data",
    program="wrong_dtype.py",
    default_ranks=3,
    min_ranks=3,
    needs_dumps=True,
)
