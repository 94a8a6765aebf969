"""`oom-killed`: the kernel kills a rank for memory.

In: nothing. Out: `REPRO`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.repro.reproducer import Launcher, Need, Repro

REPRO = Repro(
    name="oom-killed",
    summary="the kernel kills one rank for memory; the others wait for its word",
    cause=Cause.RANK_OOM_KILLED,
    guilty_ranks=(1,),
    needs="root, a memory cgroup (of either version), and a kernel log that may be read",
    expects="rank 1 is gone without a word; the kernel log has its pid; the others wait in the store",
    program="oom_killed.py",
    launcher=Launcher.PLAIN,
    memory_mib={1: 1024},
    requires=(Need.ROOT, Need.MEMORY_CGROUP),
    has_line=False,
)
