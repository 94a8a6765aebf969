"""What a bundle says about itself.

In: nothing. Out: `Manifest`, with one `HostOutcome` per host asked and one `SourceOutcome` per source that ran there.
"""

from dataclasses import dataclass
from enum import Enum

from ncclprobe.model.evidence import Artifact, Gap

MANIFEST_VERSION = "1"


class Outcome(str, Enum):
    """How a source, or a whole host, ended."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    TIMED_OUT = "timed-out"
    FAILED = "failed"
    SKIPPED = "skipped"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOutcome:
    """One source on one host. `longest_pause_s`: the longest it may have held up a process of the job."""

    name: str
    outcome: Outcome
    seconds: float
    longest_pause_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOutcome:
    """One host that was asked. `clock_offset_ns` is its clock minus the controller's, good to the transfer time."""

    name: str
    address: str
    outcome: Outcome
    clock_offset_ns: int | None = None
    python: str | None = None
    sources: tuple[SourceOutcome, ...] = ()
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The whole collection. `interval_s` is the time between the two looks; `job` the id a person passes to `--job`."""

    schema_version: str
    tool_version: str
    created_ns: int
    job: str | None
    interval_s: float | None
    hosts: tuple[HostOutcome, ...]
    items: tuple[Artifact, ...]
