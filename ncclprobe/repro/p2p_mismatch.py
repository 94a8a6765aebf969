"""`p2p-mismatch`: one rank leaves out the exchange with its neighbours, who wait for its sends.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Repro

REPRO = Repro(
    name="p2p-mismatch",
    summary="one rank leaves out the exchange with its neighbours, who wait for its sends",
    cause=Cause.P2P_MISMATCH,
    guilty_ranks=(1,),
    needs="nothing special; gloo records no send or recv, so that with gloo it can be told for two ranks only",
    expects="rank 0 waits in a send to rank 1, which waits in an all-reduce",
    program="p2p_mismatch.py",
    default_ranks=2,
    min_ranks=2,
)
