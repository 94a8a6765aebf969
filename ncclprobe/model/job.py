"""The processes of a job.

In: nothing. Out: `Rank`, `JobKey` (what tells two jobs on one host apart), and a process as seen at two looks.
"""

from dataclasses import dataclass
from enum import Enum


class Role(str, Enum):
    """What a process of the job is for."""

    RANK = "rank"
    CHILD = "child"
    LAUNCHER = "launcher"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class JobKey:
    """What all ranks of one job share in their environment; empty text where a launcher sets nothing."""

    run_id: str = ""
    master: str = ""
    scheduler_id: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.scheduler_id, self.run_id, self.master))) or "unnamed"

    def is_named(self, name: str) -> bool:
        """Whether a person's `--job NAME` means this job: any one of its parts, or the whole.

        Of `slurm:123.0` the allocation `123` is enough; `ID@PID` is one of two jobs with the rendezvous id `ID`.
        """
        step = self.scheduler_id.removeprefix("slurm:")
        allocation = step.partition(".")[0] if self.scheduler_id.startswith("slurm:") else step
        parts = (self.run_id, self.run_id.partition("@")[0], self.master, self.scheduler_id)
        return name != "" and name in (str(self), *parts, step, allocation, f"slurm:{allocation}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLook:
    """One look at a process: kernel state letter, wait channel, CPU seconds used so far, at host time `time_ns`.

    `main_run_ns`: for how long its main thread has been on a CPU so far, to the nanosecond; None where it is not told.
    """

    time_ns: int
    state: str
    wchan: str | None
    cpu_s: float
    threads: int
    main_run_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProcess:
    """A process of the job, as found in /proc. `pid` is the host's; `inner_pid` the one inside its container.

    `settings`: names and values of its environment, as far as NCCL, torch.distributed and rendezvous read them.
    """

    pid: int
    role: Role
    rank: int | None
    local_rank: int | None
    world_size: int | None
    job: JobKey
    command: str
    user: str
    parent_pid: int | None = None
    inner_pid: int | None = None
    looks: tuple[ProcessLook, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A member of the job: its global rank and where it runs."""

    rank: int
    host: str
    local_rank: int | None = None
    pid: int | None = None
    world_size: int | None = None
    children: tuple[int, ...] = ()
    looks: tuple[ProcessLook, ...] = ()
