"""What NCCL's RAS service tells: launches counted per communicator, at one look.

In: nothing. Out: `RasReport` with its communicators. RAS counts what was launched, never what completed.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RasRank:
    """A member; `rank` is the one inside the communicator. `counts` by operation (`AllReduce`), launched so far.

    `state`: `running`, `init`, `abort`, `finalize`, `missing`, `unresponsive` or `dead`; None where a text report does
    not say. `error`: in RAS's own words.
    """

    rank: int
    host: str | None = None
    pid: int | None = None
    cuda_device: int | None = None
    nvml_device: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    state: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RasCount:
    """Of a text report: `others` members have launched `count` of `op`; a rank listed by name has its own."""

    op: str
    count: int
    others: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RasCommunicator:
    """`ranks` are all members of a JSON report, of a text report those it lists. `commons`: what the unlisted have."""

    id: str
    size: int | None
    ranks: tuple[RasRank, ...]
    commons: tuple[RasCount, ...] = ()
    status: str = ""
    errors: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RasReport:
    """One look. `when_ns` as in `LogEvent`. `silent`: (host, pid) of processes without an answer; `dead`: given up."""

    nccl_version: str
    communicators: tuple[RasCommunicator, ...]
    when_ns: int | None = None
    silent: tuple[tuple[str, int], ...] = ()
    dead: tuple[tuple[str, int], ...] = ()
    timeouts: int = 0
