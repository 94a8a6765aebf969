"""`wrong-shape`: the last batch of one rank is not padded, and its all-reduce is smaller.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="wrong-shape",
    summary="the last batch of one rank is not padded, and its all-reduce is smaller",
    cause=Cause.COLLECTIVE_SHAPE_MISMATCH,
    guilty_ranks=(1,),
    needs="nothing special; with gloo the sizes are such that it hangs, with others it would abort a process",
    expects="rank 1 is done and in the next all-reduce, the others wait for the rest; NCCL may end with wrong data",
    program="wrong_shape.py",
    default_ranks=3,
    min_ranks=3,
    needs_dumps=True,
)
