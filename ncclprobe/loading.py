"""From artifacts to records: each goes through the parser of its kind.

In: artifacts with a way to read each. Out: `Evidence`. What cannot be read is one gap, and the rest is still analysed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ncclprobe.model.collectives import Recording
from ncclprobe.model.errors import NcclprobeError
from ncclprobe.model.evidence import Artifact, Gap, Kind
from ncclprobe.model.gpu import GpuLook
from ncclprobe.model.job import JobProcess
from ncclprobe.model.kernel import KernelFault, OomKill, Xid
from ncclprobe.model.log import LogEvent, OpTrace, Speaker
from ncclprobe.model.manifest import HostOutcome
from ncclprobe.model.nic import PortLook
from ncclprobe.model.ras import RasReport
from ncclprobe.model.records import Evidence, Sourced
from ncclprobe.model.source import SourceFile
from ncclprobe.model.stacks import StackDump
from ncclprobe.parse import flight_recorder, gpu, kernel_log, nic, processes, ras, recognize, stacks, user_code
from ncclprobe.parse.isolated import parse_isolated
from ncclprobe.parse.log.file import parse_log
from ncclprobe.parse.log.parse import find_families
from ncclprobe.parse.parsed import Parsed

Item = tuple[Artifact, Callable[[], bytes | Path]]

_PARSERS: dict[Kind, Callable[[Any], Parsed[Any]]] = {
    Kind.FLIGHT_RECORDER: flight_recorder.parse,
    Kind.STACKS: stacks.parse,
    Kind.PROCESSES: processes.parse,
    Kind.KERNEL_LOG: kernel_log.parse,
    Kind.USER_CODE: user_code.parse,
    Kind.GPU: gpu.parse,
    Kind.RANK_LOG: parse_log,
    Kind.RAS: ras.parse,
    Kind.NIC: nic.parse,
}
_FIELDS = {
    JobProcess: "processes",
    Recording: "recordings",
    StackDump: "stacks",
    SourceFile: "source_files",
    OomKill: "oom_kills",
    Xid: "xids",
    KernelFault: "kernel_faults",
    GpuLook: "gpus",
    PortLook: "ports",
    LogEvent: "log_events",
    Speaker: "speakers",
    OpTrace: "op_traces",
    RasReport: "ras_reports",
}
_READ_AGAIN = "nothing, when the rest decides; else collect it again"


def load_items(items: Iterable[Item], hosts: Iterable[HostOutcome] = (), gaps: Iterable[Gap] = ()) -> Evidence:
    """Every artifact, in order of path; a function that reads one may raise NcclprobeError."""
    ordered = sorted(((_with_rank(artifact), read) for artifact, read in items), key=lambda item: item[0].path)
    records: dict[str, list[Sourced[Any]]] = defaultdict(list)
    found = list(gaps)
    mute: list[str] = []
    if any(artifact.kind is Kind.RANK_LOG for artifact, _ in ordered):
        find_families()  # loaded once, here: workers are copies of this process
    jobs = ((_PARSERS[artifact.kind], read) for artifact, read in ordered)
    with closing(parse_isolated(jobs)) as results:
        for (artifact, _), result in zip(ordered, results, strict=True):
            found += _gaps(artifact, result)
            if isinstance(result, Parsed):
                for record in result.records:
                    records[_FIELDS[type(record)]].append(Sourced(artifact, record))
                if _is_mute(artifact, result):
                    mute.append(artifact.path)
    if mute:
        why = "no line of theirs is one that torch, NCCL, a launcher or a scheduler writes of a hang"
        found.append(_folded("logs", mute, why, "nothing, when the rest decides; else give the logs of all ranks"))
    return Evidence(
        hosts=tuple(hosts),
        gaps=tuple(found),
        kinds=dict(Counter(str(artifact.kind) for artifact, _ in ordered)),
        **{field: tuple(those) for field, those in records.items()},
    )


def _is_mute(artifact: Artifact, result: Parsed[Any]) -> bool:
    """A file that was given by hand as a log and tells nothing; that of a live rank without a word is no news."""
    is_given = artifact.kind is Kind.RANK_LOG and not artifact.host
    return is_given and all(isinstance(record, Speaker) for record in result.records)


def _with_rank(artifact: Artifact) -> Artifact:
    """A dump does not say whose it is; where the manifest is lost, its name does."""
    if artifact.kind is not Kind.FLIGHT_RECORDER or artifact.rank is not None:
        return artifact
    return replace(artifact, rank=recognize.rank_in_name(artifact.path.rpartition("/")[2]))


def _folded(what: str, paths: list[str], why: str, action: str) -> Gap:
    return Gap(
        who="all hosts", what=f"{len(paths)} {what} not used, the first being {paths[0]}", why=why, action=action
    )


def _gaps(artifact: Artifact, result: "Parsed[Any] | NcclprobeError") -> Iterator[Gap]:
    who = f"rank {artifact.rank}" if artifact.rank is not None else artifact.host or artifact.path
    if isinstance(result, NcclprobeError):
        yield Gap(who=who, what=f"{artifact.path} cannot be read", why=str(result), action=_READ_AGAIN)
        return
    for problem in result.problems:
        yield Gap(who=who, what=f"{artifact.path} cannot be read in full", why=problem, action=_READ_AGAIN)
