"""`wrong-interface`: a rank is told an interface that leads nowhere.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Harm, Launcher, Need, Repro

REPRO = Repro(
    name="wrong-interface",
    summary="one rank is told a network interface that does not lead to the other hosts",
    cause=Cause.INIT_MISCONFIGURED,
    guilty_ranks=(1,),
    needs="root, iproute2, util-linux and openssh-server: it makes three hosts of namespaces",
    expects="all ranks wait in, or fail in, init_process_group; GLOO_SOCKET_IFNAME of rank 1 is docker0",
    program="wrong_interface.py",
    launcher=Launcher.PLAIN,
    has_line=False,
    is_at_start=True,
    default_ranks=3,
    min_ranks=3,
    requires=(Need.ROOT, Need.NAMESPACES),
    hosts=3,
    harm=Harm(environment={1: {"GLOO_SOCKET_IFNAME": "docker0"}}),
)
