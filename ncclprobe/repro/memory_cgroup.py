"""A cgroup that limits the memory of one rank, of either version of cgroups.

In: a name and a limit. Out: the directory to make and what to write into its files; who makes it removes it too.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
_OWNER = re.compile(r"^ncclprobe-.*\.(\d+)$")

Cgroups = dict[str, dict[str, str]]


def root() -> Path | None:
    """Where such cgroups can be made; None where that is not possible."""
    if (_V1 / "memory.limit_in_bytes").exists() and os.access(_V1, os.W_OK):
        return _V1
    with suppress(OSError):
        if "memory" in (_V2 / "cgroup.subtree_control").read_text().split() and os.access(_V2, os.W_OK):
            return _V2
    return None


def plan(run_id: str, rank: int, limit_mib: int) -> Cgroups:
    """The cgroup of one rank: its directory -> file -> what to write into it. With swap nobody would be killed."""
    parent = root()
    assert parent is not None  # `needs` has seen it
    size_bytes = str(limit_mib << 20)
    # Whose process asked for it tells, should that be killed, that the cgroup is nobody's any more.
    path = parent / f"ncclprobe-{run_id}-rank{rank}.{os.getpid()}"
    if parent == _V2:
        return {str(path): {"memory.max": size_bytes, "memory.swap.max": "0"}}
    has_swap_limit = (_V1 / "memory.memsw.limit_in_bytes").exists()
    swap = {"memory.memsw.limit_in_bytes": size_bytes} if has_swap_limit else {"memory.swappiness": "0"}
    return {str(path): {"memory.limit_in_bytes": size_bytes, **swap}}


def remove_stale() -> None:
    """Remove what runs that were killed have left behind: empty cgroups whose owner has ended."""
    parent = root()
    for path in parent.glob("ncclprobe-*") if parent else ():
        owner = _OWNER.match(path.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            with suppress(OSError):
                path.rmdir()
