"""What a reproducer is.

In: nothing. Out: `Repro`, the constant that each reproducer's module defines, and what its fields are made of.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ncclprobe.model.report import Cause

DEFAULT_STEP = 400


class JobState(str, Enum):
    """What a job was found to be doing. RUNNING: it still makes progress, or has not come to the planted step yet."""

    STUCK = "stuck"
    ENDED = "ended"
    RUNNING = "running"

    __str__ = str.__str__


class Launcher(str, Enum):
    """TORCHRUN ends all ranks when one fails. PLAIN processes, as srun starts them, know nothing of one another."""

    TORCHRUN = "torchrun"
    PLAIN = "plain"

    __str__ = str.__str__


class Need(str, Enum):
    """What this machine must have, beyond torch."""

    ROOT = "root"
    MEMORY_CGROUP = "a memory cgroup"
    NAMESPACES = "network namespaces"
    GPU = "a GPU"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """What is done to the job from outside, its program being innocent. None of it is done to a repaired job.

    `absent_ranks` are never started. `environment`: what the environment of a rank says instead of the right thing.
    `links_down`: host number and network interface, taken down once a rank has come to the planted step.
    """

    absent_ranks: tuple[int, ...] = ()
    environment: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    links_down: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repro:
    """A training program with a planted hang, and the verdict it must yield.

    `summary` is one line for `--list`, `needs` what the machine must have, `expects` what a person will see. `program`
    is a file in `programs/` that keeps that folder's contract; the guilty line in it carries `# planted:`, unless
    `has_line` says that no line of code is to blame. `requires` is checked before the start.

    `does`: what the job does when it is diagnosed; None is STUCK, or RUNNING where `cause` is that nothing hangs.
    `is_at_start`: it stands before its first step. `hosts`: how many hosts are made for it of namespaces, 0 for none.
    `needs_dumps`: stacks and logs alone cannot tell, and must lead to no verdict rather than to a wrong one.
    `memory_mib`: what a rank may use at most, repaired or not. With `harm`, `hosts` or `memory_mib` it must be PLAIN.
    """

    name: str
    summary: str
    cause: Cause
    guilty_ranks: tuple[int, ...]
    needs: str
    expects: str
    program: str
    default_ranks: int = 4
    min_ranks: int = 2
    launcher: Launcher = Launcher.TORCHRUN
    does: JobState | None = None
    is_at_start: bool = False
    has_line: bool = True
    needs_dumps: bool = False
    requires: tuple[Need, ...] = ()
    harm: Harm = field(default_factory=Harm)
    memory_mib: Mapping[int, int] = field(default_factory=dict)
    hosts: int = 0

    @property
    def path(self) -> Path:
        """The program's source."""
        return Path(__file__).with_name("programs") / self.program

    @property
    def state(self) -> JobState:
        """What the job does when it is diagnosed."""
        if self.does is not None:
            return self.does
        return JobState.RUNNING if self.cause is Cause.PROGRESSING else JobState.STUCK
