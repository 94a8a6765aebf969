"""`pipeline-stall`: two stages of a pipeline both send before they receive.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="pipeline-stall",
    summary="two stages of a pipeline both send before they receive",
    cause=Cause.P2P_MISMATCH,
    guilty_ranks=(0, 1),
    needs="nothing special; gloo records no send or recv, so that with gloo it can be told for two ranks only",
    expects="rank 0 and rank 1 wait in a send to each other; NCCL may let messages as small as these through",
    program="pipeline_stall.py",
    default_ranks=2,
    min_ranks=2,
)
