"""`network-partition`: a host loses the network of the job.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Harm, Launcher, Need, Repro

REPRO = Repro(
    name="network-partition",
    summary="one host loses the network of the job, but not the one to log in by",
    cause=Cause.NETWORK_FAULT,
    guilty_ranks=(1,),
    needs="root, iproute2, util-linux and openssh-server: it makes three hosts of namespaces",
    expects="all ranks wait in the all-reduce of that step; eth1 of node1 has no carrier",
    program="network_partition.py",
    launcher=Launcher.PLAIN,
    has_line=False,
    default_ranks=3,
    min_ranks=3,
    requires=(Need.ROOT, Need.NAMESPACES),
    hosts=3,
    harm=Harm(links_down=((1, "eth1"),)),
)
