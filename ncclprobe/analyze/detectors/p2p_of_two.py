"""Two ranks are the whole job, and a send or recv of one has no counterpart at the other; told from stacks.

In: positions of the ranks. Out: at most one finding, never more than `probable`.

Stacks do not show the peer of a send or recv, and gloo's are in no flight recorder. With two ranks the peer is known.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.phases import Phase
from ncclprobe.analyze.positions import Position
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import BlockedOn, Cause, Confidence, Finding

_DIRECTIONS = {
    "send": "send",
    "send_object_list": "send",
    "recv": "recv",
    "recv_object_list": "recv",
}


def detect(case: Case) -> Iterator[Finding]:
    """Where recorders hold sends and recvs they tell more, and another detector does."""
    ranks = tuple(case.positions.values())
    is_told_elsewhere = bool(case.mismatches) or any(head.call.is_p2p for head in case.waits.heads.values())
    if is_told_elsewhere or case.expected != (0, 1) or len(ranks) != 2 or not all(map(_waits_still, ranks)):
        return
    calling = [position for position in ranks if _direction(position)]
    elsewhere = [position for position in ranks if position.phase in (Phase.COLLECTIVE, Phase.BACKWARD)]
    if len(calling) == 1 and len(elsewhere) == 1:
        yield _finding(case, calling, elsewhere)
    elif len(calling) == 2 and len({_direction(position) for position in calling}) == 1:
        yield _finding(case, calling, calling)


def _waits_still(position: Position) -> bool:
    return position.phase.waits_for_ranks and position.is_still is not False and not position.has_woken


def _direction(position: Position) -> str | None:
    frame = position.place.frame
    return _DIRECTIONS.get(frame.short_function) if frame and position.phase is Phase.P2P else None


def _finding(case: Case, calling: list[Position], owing: list[Position]) -> Finding:
    guilty = tuple(position.rank for position in owing)
    everyone = [*owing, *(position for position in calling if position not in owing)]
    return Finding(
        cause=Cause.P2P_MISMATCH,
        summary=_summary(calling, owing),
        guilty_ranks=guilty,
        confidence=Confidence.PROBABLE,
        victims=tuple(position.rank for position in calling if position.rank not in guilty),
        blocked_on=BlockedOn(group="unknown", seq=None, op=_direction(calling[0]) or ""),
        where=tuple(case.locate(p.rank, p.user_frame) for p in everyone if p.user_frame),
        evidence=tuple(
            cite(p.artifact, "MainThread", str(p.frame), f"{name_ranks([p.rank])}: {p.phase}") for p in everyone
        ),
        next_steps=("compare the two places: each send needs a recv at the other end, in the same order",),
        fix="Pair every send with its recv, in the same order on both ends, or put them in one batch.",
    )


def _summary(calling: list[Position], owing: list[Position]) -> str:
    direction = _direction(calling[0])
    if len(calling) == 2:
        return f"Both ranks wait in a {direction} to or from each other, and neither makes its counterpart."
    waiting, other = calling[0].rank, owing[0].rank
    return f"Rank {waiting} waits in a {direction} for rank {other}, which waits {owing[0].phase} instead."


DETECTOR = Detector(causes=(Cause.P2P_MISMATCH,), detect=detect)
