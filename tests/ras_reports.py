"""Reports of NCCL's RAS service as each version writes them.

In: what the communicators' members have launched. Out: the text, or the JSON.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

HASH = "fa93daea854b060b"
OPS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def where(rank: int, ranks_a_host: int = 8) -> str:
    """How a text report says where a member runs."""
    return f"GPU {rank % ranks_a_host} managed by process {9_000 + rank} on node 10.0.15.{11 + rank // ranks_a_host}"


def text(
    *blocks: str,
    version: str = "2.26.2",
    size: int = 32,
    status: str = "RUNNING",
    errors: str = "OK",
    warnings: str = "",
) -> str:
    """A text report with one communicator; `blocks` are those of the section of errors, `warnings` of the other."""
    return "\n".join(
        [
            f"NCCL version {version} compiled with CUDA 12.6",
            "CUDA runtime version 12060, driver version 12060",
            "",
            "Job summary",
            "===========",
            "",
            "  Nodes  Processes         GPUs  Processes     GPUs",
            "(total)   per node  per process    (total)  (total)",
            f"{size // 8:7d}  {8:9d}  {1:11d}  {size:9d}  {size:7d}",
            "",
            "Communicators... (0.01s)",
            "=============",
            "",
            "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
            "    #  in group  per comm  per node  per comm  in group",
            f"{0:5d}  {1:8d}  {size // 8:8d}  {'8':>8}  {size:8d}  {size:8d}  {status:>8}  {errors:>6}",
            "",
            "Errors",
            "======",
            "",
            *blocks,
            "Warnings",
            "========",
            "",
            warnings,
        ]
    )


def mismatch(*lines: str, op: str = "AllReduce ") -> str:
    """The block of different counts; `op` is empty before 2.26."""
    head = f"  Communicator ranks have different {op or 'collective '}operation counts"
    return "\n".join([f"#0-0 ({HASH}) MISMATCH", head, *(f"  {line}" for line in lines), ""])


def rank(number: int, counts: Mapping[str, int], **status: Any) -> dict[str, Any]:
    """A member of a JSON report."""
    flags = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    return {
        **_place(number),
        "status": flags | status,
        "collective_counts": {op: counts.get(op, 0) for op in OPS},
    }


def missing(number: int, *, unresponsive: bool = True, dead: bool = False) -> dict[str, Any]:
    """A member that a JSON report has no data of."""
    return {**_place(number), "status": {"unresponsive": unresponsive, "considered_dead": dead}}


def _place(number: int) -> dict[str, Any]:
    host = f"10.0.15.{11 + number // 8}"
    return {"rank": number, "host": host, "pid": 9_000 + number, "cuda_dev": number % 8, "nvml_dev": number % 8}


def as_json(ranks: Sequence[dict[str, Any]], absent: Sequence[dict[str, Any]] = (), version: str = "2.29.1") -> str:
    """A JSON report with one communicator; 2.28.9 leaves out a comma in each missing rank."""
    document = {
        "nccl_version": version,
        "cuda_runtime_version": 13_000,
        "cuda_driver_version": 13_000,
        "timestamp": "2026-08-05 11:24:41",
        "communicators_count": 1,
        "communicators": [
            {
                "hash": f"0x{HASH}",
                "secondary_hash": "0x8f1e22d0a1b37c55:0x66a0b1907fe31d24",
                "size": len(ranks) + len(absent),
                "ranks_count": len(ranks),
                "missing_ranks_count": len(absent),
                "ranks": list(ranks),
                "missing_ranks": list(absent),
            }
        ],
        "ras": {"collection_time_sec": 0.002, "timeouts_count": 1},
    }
    made = json.dumps(document, indent=2) + "\n"
    if version != "2.28.9":
        return made
    head, key, tail = made.partition('"missing_ranks": [')
    lines = [line.removesuffix(",") if '"nvml_dev"' in line else line for line in tail.split("\n")]
    return head + key + "\n".join(lines)
