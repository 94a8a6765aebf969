"""Workers that outlived their rank: they still carry its RANK, and must not be taken for it.

In: a candidate and its peers. Out: whether it is an orphan. A rank that merely lost its launcher is none: only where
the job's other ranks show how its ranks were started, one that was not started so is told from them.
"""

import os
from collections.abc import Iterable

from ncclprobe.probe import identity
from ncclprobe.probe.candidates import Candidate
from ncclprobe.probe.scan import Scan

# Programs that adopt processes whose parent has died, besides PID 1.
_REAPERS = ("systemd", "init", "tini", "dumb-init", "docker-init", "containerd-shim", "conmon", "catatonit")
_NEVER_RANKS = ("multiprocessing.resource_tracker", "multiprocessing.semaphore_tracker", "_inductor/compile_worker")


def is_orphan(one: Candidate, others: Iterable[Candidate], scan: Scan) -> bool:
    """Whether its rank has died, or been started anew, as far as that can be told."""
    if any(word in argument for word in _NEVER_RANKS for argument in one.top.arguments):
        return True
    peers = [other for other in others if other is not one and _is_same_job(one, other)]
    if any(identity.restart_count(peer.top.environ) > identity.restart_count(one.top.environ) for peer in peers):
        return True
    if _has_lost_its_group(one, scan):
        return any(not _has_lost_its_group(peer, scan) for peer in peers)
    return _is_adopted(one, scan) and any(_is_below(peer.launcher, one.launcher, scan) for peer in peers)


def _is_same_job(one: Candidate, other: Candidate) -> bool:
    return one.job == other.job or (one.job.run_id != "" and one.job.run_id == other.job.run_id)


def _has_lost_its_group(one: Candidate, scan: Scan) -> bool:
    """A rank of torchrun leads a process group of its own; a worker that it forked stays in it."""
    return one.top.group != one.top.pid and scan.get(one.top.group) is None


def _is_adopted(one: Candidate, scan: Scan) -> bool:
    parent = scan.get(one.launcher) if one.launcher is not None else None
    return parent is None or parent.pid == 1 or os.path.basename(parent.name) in _REAPERS


def _is_below(launcher: int | None, reaper: int | None, scan: Scan) -> bool:
    return launcher is not None and launcher != reaper and (reaper is None or reaper in scan.ancestors(launcher))
