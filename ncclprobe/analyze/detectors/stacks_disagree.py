"""All ranks wait for one another, at different lines: told from stacks alone, without a recorder.

In: positions of the ranks. Out: at most one finding, never more than `probable`.

Stacks show where a rank is, not what it did before, so the line must prove itself: a branch that exactly these ranks
take, with a collective inside, is a call the others never make. Without one the smaller side is a suspect only.
"""

from collections import defaultdict
from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.classes import StackClass, find_classes, parting
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.phases import Phase
from ncclprobe.analyze.positions import Position
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import BlockedOn, Cause, CodeLocation, Confidence, Finding

_CALLS = (Phase.COLLECTIVE,)  # a send that only some ranks make is how pipelines work
# Each waits on the host until all ranks have gathered the same parameters: other stacks are other parameters.
_PARAMETER_GATHERS = ("fetch_sub_module", "_unshard", "unshard", "wait_for_unshard")


def detect(case: Case) -> Iterator[Finding]:
    """Only where every expected rank was looked into, each waits, and nobody moves."""
    if case.timelines or not _all_wait(case):
        return
    sides = _sides(case)
    if len(sides) < 2:
        yield from _parted(find_classes(case.positions), case)
        return
    proven = [side for side in sides if side[0].phase in _CALLS and _branch(case, side)]
    if len(proven) == 1:
        yield _extra(case, proven[0], [side for side in sides if side is not proven[0]])
    elif len(sides[0]) > sum(len(side) for side in sides[1:]):
        yield _desync(case, sides)


def _all_wait(case: Case) -> bool:
    positions = case.positions.values()
    return (
        len(case.expected) > 1
        and set(case.expected) <= set(case.positions)
        and all(position.phase.waits_for_ranks for position in positions)
        and all(position.is_still is not False and not position.has_woken for position in positions)
    )


def _sides(case: Case) -> list[list[Position]]:
    """Ranks at the same line of user code, the largest side first."""
    by_line: dict[tuple[str, int | None], list[Position]] = defaultdict(list)
    for position in case.positions.values():
        frame = position.user_frame
        by_line[(frame.file, frame.line) if frame else ("", None)].append(position)
    return sorted(by_line.values(), key=lambda side: (-len(side), side[0].rank))


def _branch(case: Case, side: list[Position]) -> object:
    return case.branch_taken_by(tuple(p.rank for p in side), side[0].stack)


def _extra(case: Case, side: list[Position], others: list[list[Position]]) -> Finding:
    ranks = tuple(position.rank for position in side)
    op = side[0].place.frame.short_function if side[0].place.frame else "a collective"
    line = case.call_site(ranks, side[0].stack)
    at = f" at {line.file.rsplit('/', 1)[-1]}:{line.line}" if line else ""
    return Finding(
        cause=Cause.COLLECTIVE_EXTRA,
        summary=f"{name_ranks(ranks).capitalize()} waits in {op}{at}, which no other rank reaches."[:200],
        guilty_ranks=ranks,
        confidence=Confidence.PROBABLE,
        victims=tuple(sorted(position.rank for other in others for position in other)),
        blocked_on=BlockedOn(group="unknown", seq=None, op=op),
        where=_where(case, [side, others[0]]),
        evidence=tuple(_evidence(case, side, others)),
        next_steps=("run it again with --live-dump: the recorders show the calls themselves",),
        fix="Let every rank of the group make this call and gate only what follows it (the print, the log).",
    )


def _where(case: Case, sides: list[list[Position]]) -> tuple[CodeLocation, ...]:
    frames = ((side[0].rank, case.call_site(tuple(p.rank for p in side), side[0].stack)) for side in sides)
    return tuple(case.locate(rank, frame) for rank, frame in frames if frame)


def _evidence(case: Case, side: list[Position], others: list[list[Position]]) -> Iterator[Citation]:
    yield _cite(side)
    found = case.branch_taken_by(tuple(p.rank for p in side), side[0].stack)
    if found:
        artifact, branch, frame = found
        says = f"line {frame.line} runs only on {name_ranks(p.rank for p in side)}"
        yield cite(artifact, f"line {branch.line}", branch.text, says)
    for other in others:
        yield _cite(other)


def _cite(side: list[Position]) -> Citation:
    position = side[0]
    says = f"{name_ranks(p.rank for p in side)}: {position.phase}"
    return cite(position.artifact, "MainThread", str(position.frame), says)


def _desync(case: Case, sides: list[list[Position]]) -> Finding:
    minority = tuple(sorted(position.rank for side in sides[1:] for position in side))
    return Finding(
        cause=Cause.COLLECTIVE_DESYNC,
        summary=f"{name_ranks(minority).capitalize()} and the others wait for one another at different lines.",
        guilty_ranks=(),
        suspects=minority,
        confidence=Confidence.POSSIBLE,
        victims=(),
        where=_where(case, sides[::-1]),
        evidence=tuple(_cite(side) for side in sides),
        next_steps=("run it again with --live-dump: the recorders show who departed from the common sequence",),
    )


def _parted(classes: tuple[StackClass, ...], case: Case) -> Iterator[Finding]:
    """Below one line of the user's the model itself took different ways: known only of gathers of parameters."""
    places = {found.example.place.frame.short_function if found.example.place.frame else "" for found in classes}
    most = classes[-1]
    if len(classes) < 2 or len(places) > 1 or not places <= set(_PARAMETER_GATHERS):
        return
    if 2 * len(most.ranks) <= len(case.expected):
        return
    others = classes[:-1]
    ranks = tuple(sorted(rank for found in others for rank in found.ranks))
    own, theirs = parting(others[0].example.stack, most.example.stack)
    waits = f"{name_ranks(ranks).capitalize()} and the others gather different parameters"
    yield Finding(
        cause=Cause.COLLECTIVE_DESYNC,
        summary=f"{waits}: they part in {own.short_function}, at line {own.line} against {theirs.line}."[:200],
        guilty_ranks=ranks,
        confidence=Confidence.POSSIBLE,
        victims=most.ranks,
        where=(case.locate(ranks[0], own), case.locate(most.ranks[0], theirs)),
        evidence=tuple(
            cite(found.example.artifact, "MainThread", str(frame), f"{name_ranks(found.ranks)}: {found.phase}")
            for found, frame in ((others[0], own), (most, theirs))
        ),
        next_steps=("compare the data of these ranks: a branch of the model depends on it",),
        fix="Run every module that has sharded parameters on every rank, with dummy input where there is none.",
    )


DETECTOR = Detector(causes=(Cause.COLLECTIVE_EXTRA, Cause.COLLECTIVE_DESYNC), detect=detect)
