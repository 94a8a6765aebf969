"""What each rank and each group was seen doing, for the second half of a report.

In: a `Case`, and who waits for whom in it. Out: `RankState`s and `GroupState`s.
"""

from collections import defaultdict

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.classes import find_classes
from ncclprobe.analyze.devices import rank_of_device
from ncclprobe.analyze.timeline import GroupTimeline
from ncclprobe.analyze.victims import Waiting, group_id
from ncclprobe.analyze.whereabouts import last_activity
from ncclprobe.model.collectives import ProcessGroup
from ncclprobe.model.folding import fold
from ncclprobe.model.log import Activity
from ncclprobe.model.report import GpuReport, GroupState, GroupWait, RankState


def ranks_of(case: Case) -> tuple[RankState, ...]:
    """Every rank that anything is known of, in order."""
    last_seq: dict[int, dict[str, int]] = defaultdict(dict)
    for timeline in case.timelines:
        for rank, track in timeline.tracks.items():
            last_seq[rank][timeline.group.label] = track.last_seq
    idle = case.dumped.difference(case.waits.heads, case.waits.unheard)
    known = sorted({*case.ranks, *case.positions, *last_seq, *idle, *case.logs.heard})
    places = {rank: found.doing for found in find_classes(case.positions) for rank in found.ranks}
    return tuple(_rank(case, rank, last_seq.get(rank, {}), places, is_idle=rank in idle) for rank in known)


def _rank(case: Case, rank: int, last_seq: dict[str, int], places: dict[int, str], *, is_idle: bool) -> RankState:
    process = case.ranks.get(rank)
    look = process.looks[-1] if process and process.looks else None
    return RankState(
        rank=rank,
        host=process.host if process else case.host_of(rank) or "",
        pid=process.pid if process else None,
        state=look.state if look else None,
        doing=_doing(case, rank, places, is_idle=is_idle),
        last_seq=last_seq,
    )


def _doing(case: Case, rank: int, places: dict[int, str], *, is_idle: bool) -> str:
    if rank in places:
        return places[rank]
    head = case.waits.heads.get(rank)
    if head:
        return f"waiting in {head.call.signature.op}, call {head.call.seq} of {head.call.group.label}"
    if is_idle:
        return "in no collective: its recorder has no outstanding call"
    if rank in case.gone:
        return _by_log(case, rank) if any(fate.rank == rank for fate in case.fates) else "its process is gone"
    return _by_log(case, rank) or ("not known" if rank not in case.ranks else "alive")


def _by_log(case: Case, rank: int) -> str:
    """What its own failure, its watchdog, or its program's last word says."""
    fate = next((fate for fate in case.fates if fate.rank == rank), None)
    if fate:
        return f"failed: {fate.said.record.quote}"[:100]
    for group in case.standings:
        standing = group.standings.get(rank)
        if standing and standing.waits_at is not None:
            op = standing.work.op if standing.work else "a collective"
            return f"waiting in {op}, call {standing.waits_at} of {group.label}"
    activity = last_activity(case, rank)
    return str(activity.record.what.phase) if activity and isinstance(activity.record.what, Activity) else ""


def groups_of(case: Case, waiting: Waiting) -> tuple[GroupState, ...]:
    """Every group with collectives, in order of name; then those that only wait in sends and recvs."""
    seen = {group_id(timeline.group) for timeline in case.timelines}
    others = (group for group in waiting.groups if group_id(group) not in seen)
    return (
        *(_group(timeline, waiting.of(timeline.group)) for timeline in case.timelines),
        *(_message_group(group, waiting.of(group)) for group in others),
    )


def _group(timeline: GroupTimeline, waits: tuple[GroupWait, ...]) -> GroupState:
    last_seq = timeline.last_seq
    return GroupState(
        name=timeline.group.name,
        description=timeline.group.description,
        ranks=fold(timeline.members),
        behind=fold(rank for rank, track in timeline.tracks.items() if track.last_seq < last_seq),
        last_seq=last_seq,
        waits=waits,
    )


def _message_group(group: ProcessGroup, waits: tuple[GroupWait, ...]) -> GroupState:
    return GroupState(
        name=group.name,
        description=group.description,
        ranks=fold(group.ranks),
        behind="",
        last_seq=None,
        waits=waits,
    )


def gpus_of(case: Case) -> tuple[GpuReport, ...]:
    """Every GPU that was looked at: 100 percent used is no work where it spins."""
    return tuple(
        GpuReport(
            host=device.host,
            device=device.key,
            rank=rank_of_device(case, device),
            state=str(device.state),
            says=device.says,
        )
        for device in case.devices
    )
