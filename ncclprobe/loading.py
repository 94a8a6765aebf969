"""From a bundle to records: each artifact goes through the parser of its kind.

In: an open `Bundle`. Out: `Evidence`. What cannot be read is one gap, and the rest is still analysed.
"""

from collections import Counter
from collections.abc import Iterable

from ncclprobe.bundle.reader import Bundle
from ncclprobe.model.errors import NcclprobeError
from ncclprobe.model.evidence import Artifact, Gap, Kind
from ncclprobe.model.records import Evidence, Sourced
from ncclprobe.parse import flight_recorder, gpu, kernel_log, processes, stacks, user_code
from ncclprobe.parse.isolated import parse_isolated
from ncclprobe.parse.parsed import Parsed

_PARSERS = {
    Kind.FLIGHT_RECORDER: flight_recorder.parse,
    Kind.STACKS: stacks.parse,
    Kind.PROCESSES: processes.parse,
    Kind.KERNEL_LOG: kernel_log.parse,
    Kind.USER_CODE: user_code.parse,
    Kind.GPU: gpu.parse,
}


def load(bundle: Bundle) -> Evidence:
    """Everything in the bundle, in order of path."""
    items = sorted(bundle.manifest.items, key=lambda item: item.path)
    records: dict[Kind, list[Sourced]] = {kind: [] for kind in Kind}  # type: ignore[type-arg]
    gaps = list(bundle.gaps)
    wanted = [item for item in items if item.kind in _PARSERS]
    parsed = parse_isolated((_PARSERS[item.kind], lambda item=item: bundle.read(item)) for item in wanted)  # type: ignore[misc]
    for item, result in zip(wanted, parsed, strict=True):
        gaps += _problems(item, result)
        if isinstance(result, Parsed):
            records[item.kind] += (Sourced(item, record) for record in result.records)
    return Evidence(
        hosts=bundle.manifest.hosts,
        processes=tuple(records[Kind.PROCESSES]),
        recordings=tuple(records[Kind.FLIGHT_RECORDER]),
        stacks=tuple(records[Kind.STACKS]),
        source_files=tuple(records[Kind.USER_CODE]),
        oom_kills=tuple(records[Kind.KERNEL_LOG]),
        gpus=tuple(records[Kind.GPU]),
        gaps=tuple(gaps),
        kinds=dict(Counter(str(item.kind) for item in items)),
    )


def _problems(item: Artifact, result: "Parsed[object] | NcclprobeError") -> Iterable[Gap]:
    who = f"rank {item.rank}" if item.rank is not None else item.host
    action = "nothing, when the rest decides; else collect it again"
    if isinstance(result, NcclprobeError):
        yield Gap(who=who, what=f"{item.path} cannot be read", why=str(result), action=action)
        return
    for problem in result.problems:
        yield Gap(who=who, what=f"{item.path} cannot be read in full", why=problem, action=action)
