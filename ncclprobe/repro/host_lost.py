"""`host-lost`: a host falls off the network.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Harm, Launcher, Need, Repro

REPRO = Repro(
    name="host-lost",
    summary="one host falls off the network; the others wait for its rank",
    cause=Cause.HOST_UNREACHABLE,
    guilty_ranks=(1,),
    needs="root, iproute2, util-linux and openssh-server: it makes three hosts of namespaces",
    expects="node1 does not answer; the others wait in the all-reduce of that step",
    program="host_lost.py",
    launcher=Launcher.PLAIN,
    has_line=False,
    default_ranks=3,
    min_ranks=3,
    requires=(Need.ROOT, Need.NAMESPACES),
    hosts=3,
    harm=Harm(links_down=((1, "eth0"), (1, "eth1"))),
)
