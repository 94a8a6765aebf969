"""Everything that was collected, parsed: what the analysis starts from.

In: nothing. Out: `Evidence`, in which each record keeps the artifact it was read from.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ncclprobe.model.collectives import Recording
from ncclprobe.model.evidence import Artifact, Gap
from ncclprobe.model.gpu import GpuLook
from ncclprobe.model.job import JobProcess
from ncclprobe.model.kernel import OomKill
from ncclprobe.model.manifest import HostOutcome
from ncclprobe.model.source import SourceFile
from ncclprobe.model.stacks import StackDump

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Sourced(Generic[Record]):
    """A record and the artifact it was read from."""

    artifact: Artifact
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Records by kind, in order of their artifacts' paths; `kinds` counts artifacts, parsed or not."""

    hosts: tuple[HostOutcome, ...] = ()
    processes: tuple[Sourced[JobProcess], ...] = ()
    recordings: tuple[Sourced[Recording], ...] = ()
    stacks: tuple[Sourced[StackDump], ...] = ()
    source_files: tuple[Sourced[SourceFile], ...] = ()
    oom_kills: tuple[Sourced[OomKill], ...] = ()
    gpus: tuple[Sourced[GpuLook], ...] = ()
    gaps: tuple[Gap, ...] = ()
    kinds: dict[str, int] = field(default_factory=dict)
