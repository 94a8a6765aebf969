"""A live rank is outside every collective while the others wait for it.

In: positions, and roots of the wait-for graph where there are dumps. Out: a finding per kind of place.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.phases import Phase, Place
from ncclprobe.analyze.positions import Position
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import BlockedOn, Cause, Confidence, Finding

_CAUSES = {
    Phase.DATA: Cause.STUCK_IN_DATALOADER,
    Phase.CHECKPOINT: Cause.STUCK_IN_CHECKPOINT,
    Phase.PREPROCESSING: Cause.STUCK_IN_PREPROCESSING,
    Phase.EVALUATION: Cause.STUCK_IN_EVALUATION,
    Phase.LOGGING: Cause.STUCK_IN_LOGGING,
    Phase.COMPILE: Cause.STUCK_IN_COMPILE,
    Phase.LOCK: Cause.STUCK_ON_LOCK,
    Phase.DEBUGGER: Cause.STUCK_IN_PYTHON,
    Phase.PYTHON: Cause.STUCK_IN_PYTHON,
}
_FOR_OTHERS = (Phase.COLLECTIVE, Phase.P2P, Phase.BACKWARD, Phase.INIT)
_FIX = "Free that rank (the frame says from what), or let the others do the same work instead of waiting for it."


def detect(case: Case) -> Iterator[Finding]:
    """Ranks outside collectives, by what they are doing; nothing unless somebody waits for them."""
    outside = [p for p in case.positions.values() if p.phase in _CAUSES]
    waiting = [p for p in case.positions.values() if p.phase.waits_for_ranks]
    if not outside or not waiting or case.mismatches:
        return
    by_cause: dict[Cause, list[Position]] = defaultdict(list)
    for position in outside:
        by_cause[_CAUSES[position.phase]].append(position)
    for cause, positions in sorted(by_cause.items()):
        finding = _finding(case, cause, positions, waiting)
        # A rank that moves is not stuck: it may be slow, or it may loop. Only a longer look can tell.
        is_moving = any(position.is_still is False for position in positions)
        # A rank that waits for its GPU may wait for its own work: only a collective shows that it waits for others.
        is_shown = any(position.phase in _FOR_OTHERS for position in waiting) or case.world_size is not None
        is_open = is_moving or not is_shown
        yield replace(finding, guilty_ranks=(), suspects=finding.guilty_ranks) if is_open else finding


def _finding(case: Case, cause: Cause, positions: list[Position], waiting: list[Position]) -> Finding:
    ranks = tuple(position.rank for position in positions)
    first = positions[0]
    waiters = name_ranks(position.rank for position in waiting)
    summary = f"{name_ranks(ranks).capitalize()} {_is(ranks)} {first.phase}, outside every collective; {waiters} wait."
    return Finding(
        cause=cause,
        summary=summary[:200],
        guilty_ranks=ranks,
        confidence=_confidence(case, positions, waiting),
        victims=tuple(sorted(position.rank for position in waiting)),
        blocked_on=_blocked_on(case, ranks),
        where=tuple(case.locate(p.rank, p.user_frame) for p in positions[:2] if p.user_frame),
        evidence=tuple(_evidence(case, positions, waiting)),
        against=tuple(_against(positions)),
        next_steps=(f"see the whole stack on its host: py-spy dump --locals --pid {_pid(case, first)}",),
        fix=_FIX,
    )


def _is(ranks: tuple[int, ...]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _pid(case: Case, position: Position) -> int | str:
    pid = case.ranks[position.rank].pid if position.rank in case.ranks else position.artifact.pid
    return "PID" if pid is None else pid


def _confidence(case: Case, positions: list[Position], waiting: list[Position]) -> Confidence:
    """A rank that stands still while its peers' dumps miss exactly it is proven; one that moves may be slow only."""
    ranks = {position.rank for position in positions}
    is_root = any(set(root.ranks) == ranks for root in case.waits.roots)
    stands_still = all(p.is_still and p.is_idle is not False for p in positions)
    if is_root and stands_still:
        return Confidence.CERTAIN
    is_complete = len(positions) + len(waiting) == len(case.expected)
    is_minority = len(positions) < len(waiting)
    return Confidence.PROBABLE if is_complete and is_minority and (is_root or stands_still) else Confidence.POSSIBLE


def _blocked_on(case: Case, ranks: tuple[int, ...]) -> BlockedOn | None:
    """The call the roots are missing from, as one who waits in it recorded it."""
    for root in case.waits.roots:
        if set(root.ranks) & set(ranks):
            return case.waits.blocked_on(root)
    return None


def _evidence(case: Case, positions: list[Position], waiting: list[Position]) -> Iterator[Citation]:
    for position in positions[:2]:
        says = f"rank {position.rank}: {position.phase}" + (", at both looks" if position.is_still else "")
        yield cite(position.artifact, "MainThread", str(position.user_frame or position.place.frame), says)
        yield from (_cite_child(position.rank, child) for child in position.children[:1])
    for waiter in waiting[:1]:
        quote = str(waiter.user_frame or waiter.place.frame)
        yield cite(waiter.artifact, "MainThread", quote, f"{name_ranks(p.rank for p in waiting)}: {waiter.phase}")
    for root in case.waits.roots:
        if set(root.ranks) <= {position.rank for position in positions}:
            head = case.waits.waiter(root)
            says = f"{name_ranks(root.ranks)} never issued the call that rank {head.rank} waits in"
            yield cite(head.artifact, f"entry {head.call.entry}", str(head.call.signature), says)


def _cite_child(rank: int, child: tuple[object, Place]) -> Citation:
    artifact, place = child
    return cite(artifact, "MainThread", str(place.frame), f"a child process of rank {rank}: {place.phase}")  # type: ignore[arg-type]


def _against(positions: list[Position]) -> Iterator[Citation]:
    for position in positions:
        if position.is_still is False or position.is_idle is False:
            share = (
                f"{position.cpu_share:.0%} of a core" if position.cpu_share is not None else "an unknown share of CPU"
            )
            says = f"rank {position.rank} moves between the looks: it may be slow, not stuck"
            yield cite(position.artifact, "both looks", share, says)


DETECTOR = Detector(causes=tuple(dict.fromkeys(_CAUSES.values())), detect=detect)
