"""What each rank and each group was seen doing, for the second half of a report.

In: a `Case`. Out: `RankState`s and `GroupState`s.
"""

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.timeline import GroupTimeline
from ncclprobe.model.folding import fold
from ncclprobe.model.report import GroupState, RankState


def ranks_of(case: Case) -> tuple[RankState, ...]:
    """Every rank that anything is known of, in order."""
    known = sorted({*case.ranks, *case.positions, *(rank for t in case.timelines for rank in t.tracks)})
    return tuple(_rank(case, rank) for rank in known)


def _rank(case: Case, rank: int) -> RankState:
    process = case.ranks.get(rank)
    look = process.looks[-1] if process and process.looks else None
    return RankState(
        rank=rank,
        host=process.host if process else "",
        pid=process.pid if process else None,
        state=look.state if look else None,
        doing=_doing(case, rank),
        last_seq={t.group.label: t.tracks[rank].last_seq for t in case.timelines if rank in t.tracks},
    )


def _doing(case: Case, rank: int) -> str:
    position = case.positions.get(rank)
    if position:
        frame = position.user_frame or position.place.frame
        line = f" at {frame.file.rsplit('/', 1)[-1]}:{frame.line}" if frame else ""
        return f"{position.phase}{line}"
    head = case.waits.heads.get(rank)
    if head:
        return f"waiting in {head.call.signature.op}, call {head.call.seq} of {head.call.group.label}"
    return "not known" if rank not in case.ranks else "alive"


def groups_of(case: Case) -> tuple[GroupState, ...]:
    """Every group with calls, in order of name."""
    return tuple(_group(timeline) for timeline in case.timelines)


def _group(timeline: GroupTimeline) -> GroupState:
    behind = (rank for rank, track in timeline.tracks.items() if track.last_seq < timeline.last_seq)
    return GroupState(
        name=timeline.group.name,
        description=timeline.group.description,
        ranks=fold(timeline.members),
        behind=fold(behind),
        last_seq=timeline.last_seq,
    )
