"""What `ncclprobe doctor` finds.

In: nothing. Out: `Check` (could this be collected now?), `RankSettings` (what a rank was started with), `Advice` (what
is wrong with settings), and `Checkup`, all of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

Version = tuple[int, int, int]


class CheckState(str, Enum):
    """Whether something could be collected now."""

    OK = "ok"
    LIMITED = "limited"
    BLOCKED = "blocked"
    ABSENT = "absent"

    __str__ = str.__str__


class Level(str, Enum):
    """A problem loses evidence of the next hang; a note is worth knowing."""

    PROBLEM = "problem"
    NOTE = "note"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Check:
    """One kind of evidence: its `state`, why (`what`), what to do (`action`), and for which ranks, if not for all."""

    name: str
    state: CheckState
    what: str
    action: str = ""
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A directory torch is to write to. `file_system` is the kernel's name of its type; None is unknown."""

    path: str
    is_there: bool
    is_writable: bool = False
    file_system: str | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """What matters of the environment a rank was started with. `rank` is None for a shell in which no job runs yet."""

    host: str
    rank: int | None
    pid: int | None = None
    command: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    torch: Version | None = None
    nccl: Version | None = None
    dumps: Place | None = None
    pipes: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Advice:
    """A rule that settings break: in which ranks (none: a shell), what is wrong, what to do, for which versions."""

    level: Level
    rule: str
    ranks: tuple[int, ...]
    text: str
    action: str
    applies: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheckup:
    """One host: the Python that ran there, and its checks."""

    host: str
    python: str | None
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """All hosts, and what is wrong with the settings. `settings_of`: whose settings these are."""

    hosts: tuple[HostCheckup, ...]
    advice: tuple[Advice, ...]
    settings_of: str

    @property
    def is_clear(self) -> bool:
        """Whether nothing stands in the way of evidence."""
        checks = (check for host in self.hosts for check in host.checks)
        is_blocked = any(check.state is CheckState.BLOCKED for check in checks)
        return not is_blocked and not any(advice.level is Level.PROBLEM for advice in self.advice)
