"""`group-order`: ranks use their row's and their column's process group in different orders.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="group-order",
    summary="ranks use their row's and their column's process group in different orders",
    cause=Cause.GROUP_ORDER_DEADLOCK,
    guilty_ranks=(0, 1, 2, 3),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="ranks 0 and 3 wait in their rows, 1 and 2 in their columns, each for one of the others",
    program="group_order.py",
    default_ranks=4,
    min_ranks=4,
    needs_dumps=True,
)
