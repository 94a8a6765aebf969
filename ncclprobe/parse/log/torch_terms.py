"""Words that several of torch's lines share: process groups, operations, numbers.

In: text of a line. Out: `LogGroup`, operation names as the flight recorder has them, numbers.
"""

import re

from ncclprobe.model.log import LogGroup
from ncclprobe.parse.text import clean

# 2.3: `[PG 0 Rank 0]`; 2.4: `[PG 0 (default_pg) Rank 3]`; since 2.5: `[PG ID 2 PG GUID 9(mesh_tp) Rank 4]`.
_GROUP = re.compile(
    r"\[PG (?:ID \d+ PG GUID (?P<guid>[^\s()\]]{1,200})|(?P<number>\d{1,9})) ?(?:\((?P<description>[^()]{0,200})\) ?)?"
    r"(?: ?Rank (?P<rank>\d{1,9}))\]"
)

# c10d's OpType on the left, what the flight recorder calls the same on the right.
_OPS = {
    "BROADCAST": "broadcast",
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "allreduce_coalesced",
    "_ALLREDUCE_SPARSE": "all_reduce_sparse",
    "REDUCE": "reduce",
    "_REDUCE_OOP": "_reduce_oop",
    "_BROADCAST_OOP": "_broadcast_oop",
    "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "_all_gather_base",
    "ALLGATHER_COALESCED": "all_gather_into_tensor_coalesced",
    "GATHER": "gather",
    "SCATTER": "scatter",
    "REDUCE_SCATTER": "reduce_scatter",
    "_REDUCE_SCATTER_BASE": "_reduce_scatter_base",
    "REDUCE_SCATTER_COALESCED": "reduce_scatter_tensor_coalesced",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all",
    "SEND": "send",
    "RECV": "recv",
    "RECVANYSOURCE": "recv",
    "BARRIER": "barrier",
    "COALESCED": "coalesced",
}


def group_in(text: str) -> LogGroup | None:
    """The process group that a line's prefix names."""
    found = _GROUP.search(text)
    if not found:
        return None
    description = found["description"] or ""
    return LogGroup(
        name=clean(found["guid"] or found["number"]),
        description="" if description == "undefined" else clean(description),
        group_rank=int(found["rank"]),
        is_own_count=found["guid"] is None,
    )


def op_named(op_type: str) -> str:
    """`_ALLGATHER_BASE` -> `_all_gather_base`; an unknown one in lower case."""
    return _OPS.get(op_type, op_type.lower())


def whole(text: str | None, limit: int = 1 << 62) -> int | None:
    """A number a line prints; None for none, for -1 (torch's "none yet") and for 2**64-1 (-1 printed unsigned)."""
    if not text or len(text) > 19:
        return None
    number = int(text)
    return number if 0 <= number < limit else None
