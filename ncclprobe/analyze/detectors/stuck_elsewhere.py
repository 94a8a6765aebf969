"""A live rank is outside every collective while the others wait for it.

In: positions, and roots of the wait-for graph where there are dumps. Out: a finding per kind of place.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.phases import Phase
from ncclprobe.analyze.positions import Child, Position
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.frames import KERNEL
from ncclprobe.model.report import BlockedOn, Cause, CodeLocation, Confidence, Finding

_CAUSES = {
    Phase.DATA: Cause.STUCK_IN_DATALOADER,
    Phase.CHECKPOINT: Cause.STUCK_IN_CHECKPOINT,
    Phase.PREPROCESSING: Cause.STUCK_IN_PREPROCESSING,
    Phase.EVALUATION: Cause.STUCK_IN_EVALUATION,
    Phase.LOGGING: Cause.STUCK_IN_LOGGING,
    Phase.COMPILE: Cause.STUCK_IN_COMPILE,
    Phase.LOCK: Cause.STUCK_ON_LOCK,
    Phase.DEBUGGER: Cause.STUCK_IN_PYTHON,
    Phase.NETWORK: Cause.STUCK_IN_PYTHON,
    Phase.CHILD: Cause.STUCK_IN_PYTHON,
    Phase.STORAGE: Cause.STUCK_IN_PYTHON,
    Phase.PYTHON: Cause.STUCK_IN_PYTHON,
    Phase.EXIT: Cause.RANK_EXITED,
}
_FOR_OTHERS = (Phase.COLLECTIVE, Phase.P2P, Phase.BACKWARD, Phase.INIT)
_IN_CALLS = (Phase.COLLECTIVE, Phase.P2P, Phase.INIT)
# One look shows that a rank is there, not that it stays; such places are left quickly when nothing is wrong.
_TELLING = (Phase.DATA, Phase.CHECKPOINT, Phase.PREPROCESSING, Phase.LOGGING, Phase.COMPILE, Phase.DEBUGGER)
# Calls into C that wait for the GPU, or for a collective: they have no frame of their own.
_WAITS_IN_C = re.compile(r"\.(item|cpu|tolist|numpy|nonzero|synchronize|wait)\(")
_FIX = "Free that rank (the frame says from what), or let the others do the same work instead of waiting for it."
_FIX_GIL = "Let the C code release the interpreter lock before it waits or takes a lock of its own."


def detect(case: Case) -> Iterator[Finding]:
    """Ranks outside collectives, by what they are doing; nothing unless somebody waits for them."""
    outside = [p for p in case.positions.values() if p.phase in _CAUSES and not _waits_in_c(case, p)]
    waiting = [p for p in case.positions.values() if p.phase.waits_for_ranks or _waits_in_c(case, p)]
    if not waiting and all(position.phase is Phase.STORAGE for position in outside):
        waiting = [position for position in case.positions.values() if _sleeps(position)]
    if not outside or not waiting or case.mismatches:
        return
    by_cause: dict[Cause, list[Position]] = defaultdict(list)
    for position in outside:
        by_cause[_CAUSES[position.phase]].append(position)
    for cause, positions in sorted(by_cause.items()):
        finding = _finding(case, cause, positions, waiting)
        is_open = not _is_shown(case, positions, waiting)
        yield replace(finding, guilty_ranks=(), suspects=finding.guilty_ranks) if is_open else finding


def _waits_in_c(case: Case, position: Position) -> bool:
    """Whether the source shows that the line on top waits for the GPU."""
    frame = position.user_frame
    if position.phase is not Phase.PYTHON or frame is None or _top(position) != frame:
        return False
    found = case.source(position.rank, frame)
    return found is not None and _WAITS_IN_C.search(found.record.line(frame.line) or "") is not None


def _sleeps(position: Position) -> bool:
    """Whether only the kernel's frames are known, and none says for what: beside one in storage, for that one."""
    return position.phase is Phase.UNKNOWN and all(frame.file == KERNEL for frame in position.stack)


def _top(position: Position) -> object:
    return next((frame for frame in position.stack if not frame.is_native), None)


def _may_wait_in_c(position: Position) -> bool:
    """On a CPU without the interpreter lock: C code, which may compute, or may spin until the GPU has finished."""
    is_in_c = position.is_active is True and position.gil_owner is None and not position.has_rested
    return position.phase is Phase.PYTHON and is_in_c and _top(position) == position.user_frame


def _is_shown(case: Case, positions: list[Position], waiting: list[Position]) -> bool:
    """Whether it is shown that these ranks keep the others waiting."""
    # A rank that moves is not stuck: it may be slow, or it may loop. Only a longer look can tell.
    if any(position.is_still is False for position in positions):
        return False
    if any(map(_may_wait_in_c, positions)) and not all(position.phase in _IN_CALLS for position in waiting):
        return False
    if not case.waits.roots and any(position.has_woken for position in waiting):
        return False
    # A rank that waits for its GPU may wait for its own work: only a collective shows that it waits for others.
    is_for_others = any(position.phase in _FOR_OTHERS for position in waiting)
    return is_for_others or case.world_size is not None or _is_one_of_many(case, positions, waiting)


def _is_one_of_many(case: Case, positions: list[Position], waiting: list[Position]) -> bool:
    """Whether one rank, of all that were seen, is where no rank goes that waits for its GPU."""
    is_clear = all(position.phase in (*_TELLING, Phase.LOCK, Phase.STORAGE) for position in positions)
    return is_clear and len(positions) == 1 and len(waiting) > 2 and _is_complete(case, 1 + len(waiting))


def _finding(case: Case, cause: Cause, positions: list[Position], waiting: list[Position]) -> Finding:
    ranks = tuple(position.rank for position in positions)
    first = positions[0]
    waiters = f"{name_ranks(position.rank for position in waiting)} {'waits' if len(waiting) == 1 else 'wait'}"
    summary = f"{name_ranks(ranks).capitalize()} {_is(ranks)} {_doing(first)}, outside every collective; {waiters}."
    return Finding(
        cause=cause,
        summary=summary[:200],
        guilty_ranks=ranks,
        confidence=_confidence(case, positions, waiting),
        victims=tuple(sorted(position.rank for position in waiting)),
        blocked_on=_blocked_on(case, ranks),
        where=tuple(_where(case, positions)),
        evidence=tuple(_evidence(case, positions, waiting)),
        against=tuple(_against(positions)),
        next_steps=(f"see the whole stack on its host: py-spy dump --locals --pid {_pid(case, first)}",),
        fix=_FIX_GIL if first.gil_hold else _FIX,
    )


def _is(ranks: tuple[int, ...]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _doing(position: Position) -> str:
    if position.gil_hold and position.gil_hold.is_kept:
        return "waiting for the interpreter lock, which another thread of it keeps"
    if position.gil_hold:
        return "waiting for a lock while holding the interpreter's"
    child = position.busy_child
    return f"{position.phase} (its worker {child.pid} reads)" if child and child.pid else str(position.phase)


def _pid(case: Case, position: Position) -> int | str:
    pid = case.ranks[position.rank].pid if position.rank in case.ranks else position.artifact.pid
    return "PID" if pid is None else pid


def _where(case: Case, positions: list[Position]) -> Iterator[CodeLocation]:
    """The user's lines; of a single rank also the library's that says what it does, or its data worker's."""
    for position in positions[:2]:
        child = position.busy_child
        inner = child.user_frame if child else position.place.frame
        frames = (position.user_frame or inner, inner) if len(positions) == 1 else (position.user_frame or inner,)
        for frame in dict.fromkeys(frames):
            if frame and not frame.is_native:
                yield case.locate(position.rank, frame)


def _confidence(case: Case, positions: list[Position], waiting: list[Position]) -> Confidence:
    """A rank that stands still while its peers' dumps miss exactly it is proven; one that moves may be slow only."""
    ranks = {position.rank for position in positions}
    is_root = any(set(root.ranks) == ranks for root in case.waits.roots)
    stands_still = all(p.is_still and p.is_idle is not False for p in positions)
    if is_root and stands_still:
        return Confidence.CERTAIN
    if any(map(_may_wait_in_c, positions)) and not is_root:
        return Confidence.POSSIBLE
    if all(p.gil_hold and p.gil_hold.closing for p in positions):  # that nobody frees it is seen in the rank itself
        return Confidence.PROBABLE
    is_stuck = is_root or stands_still or _is_telling(positions, waiting)
    is_minority = len(positions) < len(waiting)
    is_known = _is_complete(case, len(positions) + len(waiting)) or all(p.busy_child for p in positions)
    return Confidence.PROBABLE if is_known and is_minority and is_stuck else Confidence.POSSIBLE


def _is_telling(positions: list[Position], waiting: list[Position]) -> bool:
    """Whether single looks that a person took are enough: at a hang that was known when they were taken."""
    is_by_hand = all(position.is_still is None and position.artifact.look is None for position in positions)
    is_clear = all(position.phase in _TELLING for position in positions)
    return is_by_hand and is_clear and all(position.phase in _FOR_OTHERS for position in waiting)


def _is_complete(case: Case, seen: int) -> bool:
    """Whether no rank is unseen; without a world size at least none between those that were seen."""
    is_gapless = case.world_size is not None or max(case.expected, default=-1) + 1 == len(case.expected)
    return seen == len(case.expected) and is_gapless


def _blocked_on(case: Case, ranks: tuple[int, ...]) -> BlockedOn | None:
    """The call the roots are missing from, as one who waits in it recorded it."""
    for root in case.waits.roots:
        if set(root.ranks) & set(ranks):
            return case.waits.blocked_on(root)
    return None


def _evidence(case: Case, positions: list[Position], waiting: list[Position]) -> Iterator[Citation]:
    for position in positions[:2]:
        says = f"rank {position.rank}: {position.phase}" + (", at both looks" if position.is_still else "")
        yield cite(position.artifact, "MainThread", str(position.frame), says)
        yield from _cite_gil(position)
        child = position.busy_child or next(iter(position.children), None)
        yield from [_cite_child(position.rank, child)] if child else []
    for waiter in waiting[:1]:
        quote = str(waiter.frame)
        yield cite(waiter.artifact, "MainThread", quote, f"{name_ranks(p.rank for p in waiting)}: {waiter.phase}")
    for root in case.waits.roots:
        if set(root.ranks) <= {position.rank for position in positions}:
            head = case.waits.waiter(root)
            says = f"{name_ranks(root.ranks)} never issued the call that rank {head.rank} waits in"
            yield cite(head.artifact, f"entry {head.call.entry}", str(head.call.signature), says)


def _cite_gil(position: Position) -> Iterator[Citation]:
    hold = position.gil_hold
    if hold is None:
        return
    in_what = "waits in C code that does not return" if hold.is_kept else "waits for one of C code"
    says = f"rank {position.rank} holds the interpreter lock and {in_what}"
    yield cite(hold.artifact, f"thread {hold.holder.tid}", str(hold.blocked_in), says)
    if hold.closing:
        says = f"thread {hold.waiters[0].name or hold.waiters[0].tid} has that one and waits for the interpreter's"
        yield cite(hold.artifact, f"thread {hold.waiters[0].tid}", str(hold.closing), says)


def _cite_child(rank: int, child: Child) -> Citation:
    frame = child.user_frame if child.is_at_work else child.place.frame
    return cite(child.artifact, "MainThread", str(frame), f"a child process of rank {rank}: {child.place.phase}")


def _against(positions: list[Position]) -> Iterator[Citation]:
    for position in positions:
        if position.is_still is False or position.is_idle is False:
            share = (
                f"{position.cpu_share:.0%} of a core" if position.cpu_share is not None else "an unknown share of CPU"
            )
            says = f"rank {position.rank} moves between the looks: it may be slow, not stuck"
            yield cite(position.artifact, "both looks", share, says)
        elif _may_wait_in_c(position):
            says = f"rank {position.rank} is in C code: it may work, or wait for its GPU; py-spy --native tells which"
            yield cite(position.artifact, "MainThread", "active, without the interpreter lock", says)


DETECTOR = Detector(causes=tuple(dict.fromkeys(_CAUSES.values())), detect=detect)
