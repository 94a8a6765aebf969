"""Whether what members send in an all_to_all is what their peers expect.

In: a `GroupTimeline`. Out: a `Conflict` in the call that is outstanding, None where there is none.

A list of tensors tells each rank's share for every peer, and so which rank does not fit the others. One tensor tells
only its whole size: when more goes in than comes out, some rank is wrong. A call that has ended did fit.
"""

from collections.abc import Mapping

from ncclprobe.analyze.agreement import RULES, numels
from ncclprobe.analyze.conflict import Conflict
from ncclprobe.analyze.timeline import GroupTimeline
from ncclprobe.model.collectives import Signature
from ncclprobe.model.folding import name_ranks

Shares = tuple[tuple[int, ...], tuple[int, ...]]


def find_split_conflict(timeline: GroupTimeline) -> Conflict | None:
    """Only with the dump of every member, all of which wait in the same all_to_all."""
    seq = timeline.last_seq
    shares = {}
    for rank in timeline.members:
        track = timeline.tracks.get(rank)
        call = track.call(seq) if track else None
        if call is None or call.is_completed or not _is_exchange(call.signature):
            return None
        shares[rank] = numels(call.signature.input_sizes), numels(call.signature.output_sizes)
    if all(len(sent) == len(got) == len(shares) > 1 for sent, got in shares.values()):
        return _between_peers(shares, seq)
    sent, got = (sum(sum(share[side]) for share in shares.values()) for side in (0, 1))
    if sent == got:
        return None
    basis = f"{sent} elements go in on all ranks together, and {got} come out"
    return Conflict(seq=seq, ranks=tuple(sorted(shares)), basis=basis, is_open=True)


def _is_exchange(signature: Signature) -> bool:
    return signature.op in RULES and RULES[signature.op][0] == "all_to_all"


def _between_peers(shares: Mapping[int, Shares], seq: int) -> Conflict | None:
    """The rank that takes part in every pair that does not fit; where there is no single one, all in such pairs."""
    ranks = list(shares)
    wrong = [
        (one, other)
        for place, one in enumerate(ranks)
        for at, other in enumerate(ranks)
        if shares[one][0][at] != shares[other][1][place]
    ]
    if not wrong:
        return None
    common = set(wrong[0]).intersection(*wrong)
    found = tuple(sorted(common or {rank for pair in wrong for rank in pair}))
    is_open = len(found) != 1
    first, second = wrong[0]
    basis = f"what rank {first} sends to rank {second} is not what that one expects"
    if not is_open:
        basis += f"; between all but {name_ranks(found)} it fits"
    return Conflict(seq=seq, ranks=found, basis=basis, is_open=is_open)
