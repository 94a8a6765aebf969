"""`checkpoint-stuck`: rank 0 saves a checkpoint to storage that takes no more bytes.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="checkpoint-stuck",
    summary="rank 0 saves a checkpoint to storage that takes no more bytes",
    cause=Cause.STUCK_IN_CHECKPOINT,
    guilty_ranks=(0,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 0 is in `torch.save`, the others wait in the all-reduce of the next step",
    program="checkpoint_stuck.py",
)
