"""What a source is, and what it is given.

In: nothing. Out: `Source`, `Context` (the host's ranks, options, tools), and what a source yields: `Found` and `Gap`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ncclprobe.model.evidence import Artifact, Gap, Kind
from ncclprobe.model.job import JobProcess, Role


class Disturbance(str, Enum):
    """What reading the evidence does to the job."""

    NOTHING = "nothing"
    PAUSE = "pause"
    INJECTION = "injection"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user allowed and asked for. `interval_s` is the time between two looks.

    `ras`: whether NCCL's RAS service is asked; None is "where that is safe".
    """

    interval_s: float = 1.0
    stacks: bool = True
    blocking_stacks: bool = False
    native_stacks: bool = False
    live_dump: bool = False
    user_code: bool = True
    ras: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """An artifact of an earlier wave: its bytes lie in `spool`."""

    artifact: Artifact
    spool: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One host: its job's processes, the options, the folder of tools that came with the kit, what is there already."""

    host: str
    processes: tuple[JobProcess, ...]
    options: Options
    tools: Path
    deadline: float
    earlier: tuple[Collected, ...] = ()

    @property
    def ranks(self) -> tuple[JobProcess, ...]:
        """The processes that are ranks, in order of rank."""
        ranks = (process for process in self.processes if process.role is Role.RANK)
        return tuple(sorted(ranks, key=lambda p: (-1 if p.rank is None else p.rank, p.pid)))

    @property
    def children(self) -> tuple[JobProcess, ...]:
        """Workers and other Python children of ranks."""
        return tuple(process for process in self.processes if process.role is Role.CHILD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Bytes a source read. `file` is its name inside the source's folder; `pause_s` how long it held the process up."""

    file: str
    kind: Kind
    origin: str
    data: bytes
    rank: int | None = None
    pid: int | None = None
    look: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    exit_status: int | None = None
    truncated: bool = False
    pause_s: float = 0.0


Collect = Callable[[Context], Iterator[Found | Gap]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One kind of evidence. Sources of a wave run at once; the next wave sees what the earlier ones found.

    `timeout_s` is for the work; one that looks `looks` times also waits the options' interval between them.
    """

    name: str
    disturbs: Disturbance
    collect: Collect
    wave: int = 1
    timeout_s: float = 20.0
    looks: int = 1
    is_wanted: Callable[[Options], bool] = field(default=lambda options: True)

    def time_needed_s(self, options: Options) -> float:
        """After how long it is given up."""
        return self.timeout_s + (self.looks - 1) * options.interval_s
