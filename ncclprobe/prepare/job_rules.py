"""The rules for what differs between ranks.

In: the settings of all ranks of a job. Out: `JOB_RULES`.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ncclprobe.model.checkup import Level, RankSettings, Version
from ncclprobe.model.folding import name_ranks
from ncclprobe.prepare.lint import Complaint, JobRule

_COMPARED = re.compile(r"(?:TORCH|NCCL)_\w+|CUDA_LAUNCH_BLOCKING", re.ASCII)
# Names of files and of what a host has; these may well differ.
_OF_HOST = re.compile(
    r"\w+_(?:FILE|DIR|PATH|SOCKET|PREFIX)|TORCH_HOME|TORCH_EXTENSIONS_DIR|TORCHINDUCTOR_\w+|TORCH_NCCL_DEBUG_INFO_\w+"
    r"|NCCL_(?:SOCKET_IFNAME|IB_HCA|OOB_NET_IFNAME|RAS_ADDR|COMM_ID|HOSTID|GRAPH_DUMP_FILE|TOPO_DUMP_FILE)",
    re.ASCII,
)
_MAX_TOLD = 3


def _different_settings(settings: Sequence[RankSettings]) -> Iterator[Complaint]:
    names = sorted({name for one in settings for name in one.variables if _COMPARED.fullmatch(name)})
    for name in (name for name in names if not _OF_HOST.fullmatch(name)):
        by_value: dict[str, set[int]] = defaultdict(set)
        for one in settings:
            if one.rank is not None:
                value = one.variables.get(name)
                by_value["not set" if value is None else f"={value}"].add(one.rank)
        if len(by_value) > 1:
            yield _complaint(f"{name} differs between ranks", by_value)


def _different_versions(settings: Sequence[RankSettings]) -> Iterator[Complaint]:
    for library, versions in (
        ("torch", {one.rank: one.torch for one in settings}),
        ("NCCL", {one.rank: one.nccl for one in settings}),
    ):
        by_version: dict[str, set[int]] = defaultdict(set)
        for rank, version in versions.items():
            if rank is not None and version is not None:
                by_version[_text(version)].add(rank)
        if len(by_version) > 1:
            yield _complaint(f"{library} differs between ranks", by_version)


def _complaint(what: str, by_value: dict[str, set[int]]) -> Complaint:
    """The ranks of all values but the most frequent one."""
    ordered = sorted(by_value.items(), key=lambda pair: (-len(pair[1]), min(pair[1])))
    others = sorted(rank for _, ranks in ordered[1:] for rank in ranks)
    told = [f"{value} in {name_ranks(ranks)}" for value, ranks in ordered[:_MAX_TOLD]]
    more = f", and {len(ordered) - _MAX_TOLD} more values" if len(ordered) > _MAX_TOLD else ""
    return tuple(others), f"{what}: {', '.join(told)}{more}"


def _text(version: Version) -> str:
    return ".".join(map(str, version))


JOB_RULES: tuple[JobRule, ...] = (
    JobRule(
        name="settings-differ",
        level=Level.PROBLEM,
        find=_different_settings,
        action="set them where all ranks get them: in the launcher's command, or mpirun -x, srun --export",
        applies="all versions",
    ),
    JobRule(
        name="versions-differ",
        level=Level.PROBLEM,
        find=_different_versions,
        action="give all hosts the same environment or image",
        applies="all versions",
    ),
)
