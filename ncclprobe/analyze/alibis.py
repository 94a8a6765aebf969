"""Ranks that cannot be the missing one, because they wait for it in the same call as others.

In: `Logs`. Out: the ranks. A call that all have issued ends, unless the network or a GPU fails, so one that times out
lacks a rank, and it is none of those that report it; what they raised before they issued it, their program has handled.
"""

from collections import defaultdict

from ncclprobe.analyze.logs import Logs
from ncclprobe.model.log import WorkTimeout

_P2P = ("send", "recv", "coalesced")


def find_alibis(logs: Logs) -> frozenset[int]:
    """Ranks whose own watchdogs gave up a call that those of others gave up, too."""
    in_call: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for said, work in logs.facts(WorkTimeout):
        rank, group = said.record.rank, said.record.group
        if rank is not None and work.op not in _P2P:
            name = group.name if group is not None else None
            in_call[name, work.seq, work.op, work.numel_in, work.numel_out].add(rank)
    return frozenset(rank for ranks in in_call.values() if len(ranks) > 1 for rank in ranks)
