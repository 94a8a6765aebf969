"""`wrong-order`: one rank starts its two collectives in the other order.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="wrong-order",
    summary="one rank starts its two collectives in the other order",
    cause=Cause.COLLECTIVE_DESYNC,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="every rank waits for its first collective, rank 1 for an all-reduce, the others for an all-gather",
    program="wrong_order.py",
    default_ranks=3,
    min_ranks=3,
    needs_dumps=True,
)
