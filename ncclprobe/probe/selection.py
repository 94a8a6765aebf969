"""Which of the jobs on a host is meant.

In: the processes of all jobs and what the user said. Out: the processes of one job, or all that it may be.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ncclprobe.model.job import JobKey, JobProcess, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the user said of the job: its name, one of its pids, its owner; all None means the only one there is."""

    job: str | None = None
    pid: int | None = None
    user: str | None = None

    def __str__(self) -> str:
        """As the user would write it."""
        options = (("--job", self.job), ("--pid", self.pid), ("--user", self.user))
        return " ".join(f"{name} {value}" for name, value in options if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """One job and its processes; or no job: `candidates` may be meant, `others` are there but cannot be."""

    job: JobKey | None = None
    processes: tuple[JobProcess, ...] = ()
    candidates: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def select(found: Iterable[JobProcess], selection: Selection) -> Selected:
    """Never guesses: two jobs that match are candidates, not an answer."""
    processes = tuple(found)
    ranks = [process for process in processes if process.role is Role.RANK]
    jobs = sorted({rank.job for rank in ranks if _matches(rank, processes, selection)})
    if len(jobs) == 1:
        return Selected(job=jobs[0], processes=tuple(p for p in processes if p.job == jobs[0]))
    if jobs:
        return Selected(candidates=tuple(_describe(job, ranks) for job in jobs))
    return Selected(others=tuple(_describe(job, ranks) for job in sorted({rank.job for rank in ranks})))


def _matches(rank: JobProcess, processes: Iterable[JobProcess], selection: Selection) -> bool:
    if selection.job is not None and not rank.job.is_named(selection.job):
        return False
    if selection.user is not None and rank.user != selection.user:
        return False
    return selection.pid is None or any(p.pid == selection.pid and p.job == rank.job for p in processes)


def _describe(job: JobKey, ranks: Iterable[JobProcess]) -> str:
    members = [rank for rank in ranks if rank.job == job]
    first = min(members, key=lambda rank: rank.pid)
    return f"{job} ({len(members)} ranks of {first.user}, pid {first.pid}: {first.command[:60]})"
