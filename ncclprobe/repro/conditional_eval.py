"""`conditional-eval`: rank 0 alone evaluates a model whose weights are sharded (FSDP).

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="conditional-eval",
    summary="rank 0 alone evaluates a model whose weights are sharded (FSDP)",
    cause=Cause.COLLECTIVE_EXTRA,
    guilty_ranks=(0,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 0 waits in an all-gather under `if rank == 0`, the others in backward of the next step",
    program="conditional_eval.py",
    default_ranks=3,
    min_ranks=3,
)
