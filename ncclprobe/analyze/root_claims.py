"""Whether the members of a group agree on the root of a gather or a scatter.

In: a `GroupTimeline`. Out: the first `Conflict`, None where there is none.

Of roots a dump says nothing but this: of a gather and of a scatter the root has tensors on both sides, the other
members on one. So exactly one member takes that part. Who is wrong, the group's own habit tells, where one rank has
always been the root.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import compress

from ncclprobe.analyze.agreement import numels
from ncclprobe.analyze.conflict import Conflict
from ncclprobe.analyze.timeline import GroupTimeline, Track
from ncclprobe.model.collectives import Signature
from ncclprobe.model.folding import name_ranks

_ROOTED = ("gather", "scatter")
_MIN_TIMES = 3


def find_root_conflict(timeline: GroupTimeline) -> Conflict | None:
    """Only among calls that every member heard has made."""
    claims, counts = _claims(timeline.tracks.values())
    usual: list[int] = []
    for seq in sorted(seq for seq, count in counts.items() if count == len(timeline.tracks)):
        if len(claims[seq]) == 1:
            usual += claims[seq]
        elif claims[seq] or not (timeline.silent or _is_damaged(timeline)):
            return _conflict(timeline, seq, claims[seq], usual)
    return None


def _claims(tracks: Iterable[Track]) -> tuple[dict[int, list[int]], dict[int, int]]:
    """By number: who took the root's part, and how many made such a call at all."""
    claims: dict[int, list[int]] = defaultdict(list)
    counts: dict[int, int] = defaultdict(int)
    for track in tracks:
        signatures = track.recording.signatures
        is_root = {index: _takes_root(s) for index, s in enumerate(signatures) if s.op in _ROOTED}
        if not is_root:
            continue
        numbers = list(map(track.recording.signature_of.__getitem__, track.rows))
        for seq, number in compress(zip(track.seqs, numbers, strict=True), map(is_root.__contains__, numbers)):
            counts[seq] += 1
            if is_root[number]:
                claims[seq].append(track.rank)
    return claims, counts


def _takes_root(signature: Signature) -> bool:
    return all(sum(numels(sizes)) > 0 for sizes in (signature.input_sizes, signature.output_sizes))


def _is_damaged(timeline: GroupTimeline) -> bool:
    return not all(track.recording.is_whole for track in timeline.tracks.values())


def _conflict(timeline: GroupTimeline, seq: int, claiming: list[int], earlier: list[int]) -> Conflict | None:
    said = f"{name_ranks(claiming)} took the root's part" if claiming else "no rank took the root's part"
    usual = earlier[-1] if len(earlier) >= _MIN_TIMES and len(set(earlier)) == 1 else None
    if usual is None:
        ranks = tuple(claiming) or tuple(sorted(timeline.tracks))
        return Conflict(seq=seq, ranks=ranks, basis=said, is_open=True)
    wrong = tuple(rank for rank in claiming if rank != usual) if claiming else (usual,)
    basis = f"{said}; in the {len(earlier)} such calls before it was always rank {usual}"
    return Conflict(seq=seq, ranks=wrong, basis=basis, is_open=False)
