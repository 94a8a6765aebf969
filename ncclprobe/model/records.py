"""Everything that was collected, parsed: what the analysis starts from.

In: nothing. Out: `Evidence`, in which each record keeps the artifact it was read from.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ncclprobe.model.collectives import Recording
from ncclprobe.model.evidence import Artifact, Gap
from ncclprobe.model.gpu import GpuLook
from ncclprobe.model.job import JobProcess
from ncclprobe.model.kernel import KernelFault, OomKill, Xid
from ncclprobe.model.log import LogEvent, OpTrace, Speaker
from ncclprobe.model.manifest import HostOutcome
from ncclprobe.model.nic import PortLook
from ncclprobe.model.ras import RasReport
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
    xids: tuple[Sourced[Xid], ...] = ()
    kernel_faults: tuple[Sourced[KernelFault], ...] = ()
    gpus: tuple[Sourced[GpuLook], ...] = ()
    ports: tuple[Sourced[PortLook], ...] = ()
    log_events: tuple[Sourced[LogEvent], ...] = ()
    speakers: tuple[Sourced[Speaker], ...] = ()
    op_traces: tuple[Sourced[OpTrace], ...] = ()
    ras_reports: tuple[Sourced[RasReport], ...] = ()
    gaps: tuple[Gap, ...] = ()
    kinds: dict[str, int] = field(default_factory=dict)
