"""Whether this machine has what a reproducer needs.

In: a `Repro`. Out: one line that says what is missing and one that says what to do, or None.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from ncclprobe.repro import memory_cgroup
from ncclprobe.repro.reproducer import Need, Repro

SSHD_PLACES = "/usr/sbin:/usr/local/sbin:/sbin"
_TOOLS = ("ip", "unshare", "nsenter", "mount", "ssh-keygen", "sshd")
_TIMEOUT_S = 20

Missing = tuple[str, str]


def missing(repro: Repro) -> Missing | None:
    """The first of its needs that is not met."""
    found = (_CHECKS[need]() for need in repro.requires)
    return next(((f"{repro.name} needs {what}", advice) for what, advice in filter(None, found)), None)


def find_tool(name: str) -> str | None:
    """Where a program is; sshd is in no user's PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SSHD_PLACES}")


def _root() -> Missing | None:
    return None if os.geteuid() == 0 else ("root", "run it with sudo")


def _cgroup() -> Missing | None:
    if memory_cgroup.root() is not None:
        return None
    return "a memory cgroup that may be written", "run it as root, on a host or in a privileged container"


def _gpu() -> Missing | None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return None
    return "an NVIDIA GPU", "run it on a machine with one"


@lru_cache(maxsize=1)
def _namespaces() -> Missing | None:
    absent = [tool for tool in _TOOLS if find_tool(tool) is None]
    if absent:
        return f"{', '.join(absent)}, not installed", "install iproute2, util-linux and openssh-server"
    probe = ["unshare", "--net", "--uts", "--pid", "--mount", "--fork", "--mount-proc", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode == 0:
        return None
    return f"namespaces, which are not allowed: {done.stderr.strip()}", "run it as root, outside of a container"


_CHECKS: dict[Need, Callable[[], Missing | None]] = {
    Need.ROOT: _root,
    Need.MEMORY_CGROUP: _cgroup,
    Need.NAMESPACES: _namespaces,
    Need.GPU: _gpu,
}
