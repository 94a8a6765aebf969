"""What each process of a job is for.

In: a `Scan`. Out: `JobProcess`es: ranks, their Python children (data-loader workers and the like), their launchers.
"""

import pwd
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ncclprobe.model.job import JobKey, JobProcess, Role
from ncclprobe.probe import identity
from ncclprobe.probe.candidates import Candidate, HasTorch, find_candidates
from ncclprobe.probe.orphans import is_orphan
from ncclprobe.probe.scan import Scan, Seen

_INIT_PID = 1


def assign_roles(scan: Scan, own_pid: int, has_torch: HasTorch) -> list[JobProcess]:
    """Ranks, then children, then launchers. `own_pid` and `has_torch`: see `find_candidates`."""
    candidates = _without_bystanders(find_candidates(scan, own_pid, has_torch))
    orphans = [one for one in candidates if is_orphan(one, candidates, scan)]
    kept = [one for one in candidates if one not in orphans]
    ranks, rivals = _settle_rivals(_told_apart(kept), has_torch)
    return [*_with_roles(ranks, [*orphans, *rivals]), *_launchers(ranks, scan)]


def _without_bystanders(candidates: list[Candidate]) -> list[Candidate]:
    """Where a scheduler's job has ranks by RANK, what has only the scheduler's number (a user's shell) is none."""
    explicit = {
        identity.allocation(one.top.environ)
        for one in candidates
        if identity.explicit_rank(one.top.environ) is not None
    }
    return [
        one
        for one in candidates
        if identity.explicit_rank(one.top.environ) is not None or identity.allocation(one.top.environ) not in explicit
    ]


def _told_apart(candidates: list[Candidate]) -> list[Candidate]:
    """A job in which a rank is there twice, under two launchers, is two: in containers, each with its own localhost."""
    launchers = defaultdict(set)
    for one in candidates:
        launchers[one.job, one.number].add(one.launcher)
    mixed = {job for (job, _), found in launchers.items() if len(found) > 1}
    for one in candidates:
        if one.job in mixed:
            one.job = replace(one.job, run_id=f"{one.job.run_id}@{one.launcher}")
    return candidates


def _settle_rivals(candidates: list[Candidate], has_torch: HasTorch) -> tuple[list[Candidate], list[Candidate]]:
    """One process a rank: of several, one that has torch, and the oldest. The others are its helpers."""
    ranks, rivals = [], []
    by_rank = defaultdict(list)
    for one in candidates:
        by_rank[one.job, one.number].append(one)
    for same in by_rank.values():
        best = same[0] if len(same) == 1 else min(same, key=lambda one: (not has_torch(one.top.pid), one.top.pid))
        ranks.append(best)
        rivals += [one for one in same if one is not best]
    return ranks, rivals


def _with_roles(ranks: Iterable[Candidate], others: Iterable[Candidate]) -> Iterator[JobProcess]:
    for one in ranks:
        yield _describe(one.top, Role.RANK, one.job, one.number)
    for one in ranks:
        yield from (_describe(child, Role.CHILD, one.job, one.number) for child in one.children)
    for one in others:
        yield from (_describe(seen, Role.CHILD, one.job, one.number) for seen in (one.top, *one.children))


def _launchers(ranks: Iterable[Candidate], scan: Scan) -> Iterator[JobProcess]:
    jobs = {pid: one.job for one in ranks for pid in (*one.wrappers, one.launcher) if pid is not None}
    for pid, job in sorted(jobs.items()):
        process = scan.get(pid)
        if process is not None and (pid != _INIT_PID or process.is_python):
            yield _describe(process, Role.LAUNCHER, job, None)


def _describe(process: Seen, role: Role, job: JobKey, number: int | None) -> JobProcess:
    return JobProcess(
        pid=process.pid,
        role=role,
        rank=number,
        local_rank=identity.local_rank(process.environ) if number is not None else None,
        world_size=identity.world_size(process.environ) if number is not None else None,
        job=job,
        command=process.command,
        user=_user_name(process.uid),
        parent_pid=process.parent_pid,
        inner_pid=process.inner_pid if process.inner_pid != process.pid else None,
    )


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
