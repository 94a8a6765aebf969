"""`slow-storage`: the training process itself loads a shard from storage that does not answer.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="slow-storage",
    summary="the training process itself loads a shard from storage that does not answer",
    cause=Cause.STUCK_IN_DATALOADER,
    guilty_ranks=(1,),
    needs="nothing special: NCCL where every rank has a GPU, else gloo on the CPU",
    expects="rank 1 is in `torch.load` inside its data loader; the others wait in the all-reduce of that step",
    program="slow_storage.py",
)
