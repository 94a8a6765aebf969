"""Settings and versions of each rank: from the environment of its process, from logs, dumps and RAS.

In: a `Case`. Out: for each setting, who has which value, and where that stands.
"""

from collections import defaultdict
from dataclasses import dataclass

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.logs import cite_said
from ncclprobe.model.evidence import Citation
from ncclprobe.model.log import Setting

# What a rank has for itself, or what differs by rights: places, devices, files.
_OWN = frozenset(
    {
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NODE_RANK", "LOCAL_WORLD_SIZE", "NPROC_PER_NODE", "NNODES"),
        *("pid", "host", "machine", "NCCL_HOSTID", "NCCL_DEBUG_FILE", "NCCL_RAS_ADDR", "CUDA_VISIBLE_DEVICES"),
        *("NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE", "cuda_device", "network", "address"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What one rank has, and where it is written."""

    text: str
    citation: Citation


def settings_of(case: Case) -> dict[str, dict[int, Value]]:
    """By name and rank. A rank without a value is left out: nothing is known of it, or it is not set."""
    found: dict[str, dict[int, Value]] = defaultdict(dict)
    for process in case.evidence.processes:
        record = process.record
        if record.rank is None:
            continue
        for name, text in record.settings:
            citation = cite(process.artifact, f"pid {record.pid}", f"{name}={text}", f"rank {record.rank} has it")
            found[name].setdefault(record.rank, Value(text=text, citation=citation))
    for said, what in case.logs.facts(Setting):
        for rank in _ranks(case, said.record.rank, said.record.host):
            value = Value(text=what.value, citation=cite_said(said, f"rank {rank} has {what.name}={what.value}"))
            found[what.name].setdefault(rank, value)
    for sourced in case.evidence.recordings:
        version, owner = sourced.record.library_version, sourced.artifact.rank
        if version and owner is not None and "nccl" in sourced.record.backends:
            citation = cite(sourced.artifact, "nccl_version", version, f"rank {owner} runs NCCL {version}")
            found["nccl"].setdefault(owner, Value(text=version, citation=citation))
    return {name: dict(sorted(of_rank.items())) for name, of_rank in sorted(found.items()) if name not in _OWN}


def _ranks(case: Case, rank: int | None, host: str | None) -> tuple[int, ...]:
    """Whom a line is about: its rank, or all of its host."""
    if rank is not None:
        return (rank,)
    return case.ranks_of_host(host) if host else ()


def minority(of_rank: dict[int, Value]) -> tuple[str, tuple[int, ...], tuple[int, ...]] | None:
    """The usual value, who has it, and the few that have another; None where all agree or nobody is most."""
    by_text: dict[str, list[int]] = defaultdict(list)
    for rank, value in of_rank.items():
        by_text[value.text].append(rank)
    usual, most = max(by_text.items(), key=lambda item: (len(item[1]), item[0]), default=("", []))
    few = tuple(sorted(rank for text, ranks in by_text.items() if text != usual for rank in ranks))
    return (usual, tuple(most), few) if few and len(most) > len(few) else None
