"""Which processes on this host belong to distributed jobs.

In: /proc. Out: `Discovery`: the processes with their roles, and gaps for those that could not be looked into.

A rank is told by the environment it was started with. A job whose program sets RANK only after the start
(`torch.multiprocessing.spawn`) therefore shows none, and the gap says so.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncclprobe.model.evidence import Gap
from ncclprobe.model.job import JobProcess, Role
from ncclprobe.probe import identity, proc
from ncclprobe.probe.roles import assign_roles
from ncclprobe.probe.scan import Scan, is_python, scan

NO_RANK = "no rank of a distributed job"
_MAPS_LIMIT_BYTES = 8 << 20
_MAX_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """All jobs' processes on this host, and what is not known."""

    processes: tuple[JobProcess, ...]
    gaps: tuple[Gap, ...]


def discover(host: str, own_pid: int, root: Path = proc.ROOT) -> Discovery:
    """The processes of all jobs. `own_pid` is the probe's own process, which belongs to none."""
    found = scan(root)
    processes = assign_roles(found, own_pid, lambda pid: _has_torch(pid, root))
    return Discovery(processes=tuple(processes), gaps=tuple(_gaps(host, found, processes)))


def _gaps(host: str, found: Scan, processes: Sequence[JobProcess]) -> Iterator[Gap]:
    if not any(process.role is Role.RANK for process in processes):
        yield _no_rank(host, found)
    elif found.refused and not _are_all_there(found, processes):
        why, action = _refusal(found)
        yield Gap(who=host, what="ranks may be missing", why=why, action=action)
    for pid in found.stuck:
        yield _stuck(host, found, pid)
    if found.unread:
        why = f"{found.unread} processes were not tried after {len(found.stuck)} that blocked"
        yield Gap(who=host, what="ranks may be missing", why=why, action="see dmesg on the host: a driver hangs")
    yield from _dead_ranks(processes)


def _no_rank(host: str, found: Scan) -> Gap:
    why = "no process was started with RANK, SLURM_PROCID or the like in its environment"
    action = "check that the job runs on this host"
    torches = [pid for pid in found.unmarked if is_python(pid, found.root) and _has_torch(pid, found.root)]
    if found.refused:
        reason, action = _refusal(found)
        why += f"; {reason}"
    elif hides_others(found.root):
        why, action = f"{why}; /proc hides other users' processes (hidepid)", "run as root, or as the job's user"
    elif torches:
        why += f"; {_pids(torches)} run torch without it, as torch.multiprocessing.spawn does, which sets it too late"
        action = "start the ranks with torchrun, srun or mpirun; py-spy dump --pid PID shows one by hand"
    return Gap(who=host, what=NO_RANK, why=why, action=action)


def _refusal(found: Scan) -> tuple[str, str]:
    why, action = proc.ptrace_obstacle(found.refused[0], found.root)
    count = len(found.refused)
    return f"{count} Python process{'es' if count > 1 else ''} could not be looked into: {why}", action


def _stuck(host: str, found: Scan, pid: int) -> Gap:
    name, state = proc.status(pid, found.root).get("Name", "?"), (proc.stat(pid, found.root) or ["?"])[0]
    return Gap(
        who=host,
        what=f"process {pid} ({name}) could not be looked into",
        why=f"to read it blocks: something in the kernel keeps its memory locked (state {state})",
        action=f"if it is a rank, it is the first suspect: see /proc/{pid}/stack as root",
    )


def _are_all_there(found: Scan, processes: Sequence[JobProcess]) -> bool:
    """Whether each job has as many ranks here as its launcher says it started."""
    ranks = [process for process in processes if process.role is Role.RANK]
    counts = Counter(process.job for process in ranks)
    wanted = {rank.job: identity.local_world_size(found.marked[rank.pid].environ) for rank in ranks}
    return all(size is not None and counts[job] >= size for job, size in wanted.items())


def _dead_ranks(processes: Sequence[JobProcess]) -> Iterator[Gap]:
    alive = {(process.job, process.rank) for process in processes if process.role is Role.RANK}
    jobs = {job for job, _ in alive}
    left: dict[int, list[int]] = {}
    for process in processes:
        if process.role is Role.CHILD and process.job in jobs and (process.job, process.rank) not in alive:
            left.setdefault(process.rank or 0, []).append(process.pid)
    for rank, pids in sorted(left.items()):
        yield Gap(
            who=f"rank {rank}",
            what="its process is gone",
            why=f"only children of it live on: {_pids(pids)}",
            action="see the end of its log, and the kernel log for an out-of-memory kill",
        )


def _has_torch(pid: int, root: Path) -> bool:
    """Whether a library of torch is mapped."""
    return b"/libtorch" in (proc.read(pid, "maps", _MAPS_LIMIT_BYTES, root) or b"")


def hides_others(root: Path = proc.ROOT) -> bool:
    """Whether /proc is mounted so that we see no processes but our own."""
    mounts = (proc.read(os.getpid(), "mounts", root=root) or b"").decode("utf-8", "replace")
    options = [line.split()[3] for line in mounts.splitlines() if line.startswith("proc /proc ")]
    return os.geteuid() != 0 and any("hidepid=" in option and "hidepid=0" not in option for option in options)


def _pids(pids: Sequence[int]) -> str:
    more = ", ..." if len(pids) > _MAX_NAMED else ""
    return f"pid{'s' if len(pids) > 1 else ''} {', '.join(map(str, pids[:_MAX_NAMED]))}{more}"
