"""What was collected, and what was not.

In: nothing. Out: `Artifact` (a raw file), `Citation` (a place in one) and `Gap` (what is not known, for whom, why).
"""

from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """What a raw file holds; decides which parser reads it."""

    FLIGHT_RECORDER = "flight-recorder"
    STACKS = "stacks"
    PROCESSES = "processes"
    KERNEL_LOG = "kernel-log"
    RANK_LOG = "rank-log"
    GPU = "gpu"
    RAS = "ras"
    NIC = "nic"
    USER_CODE = "user-code"
    CHECKUP = "checkup"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A raw file of a bundle and where it came from.

    `path` is relative to the bundle (`hosts/node1/stacks/rank0.json`). `origin` is the command or the path on the host.
    `start_ns` and `end_ns` are the host's wall clock while it was read. `look` numbers repeated readings, from 1.
    """

    path: str
    kind: Kind
    host: str
    origin: str
    rank: int | None = None
    pid: int | None = None
    look: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    exit_status: int | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Citation:
    """A place in an artifact (`place`: line, entry or key), a short quote, and what it says about the job."""

    artifact: str
    place: str
    quote: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Gap:
    """Something that is not known: `who` it concerns, `what` is missing, `why`, and what to do about it (`action`)."""

    who: str
    what: str
    why: str
    action: str
