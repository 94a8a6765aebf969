"""Ranks of one group issued different calls at the same sequence number: extra, skipped, desync, op or shape.

In: the divergences found in flight-recorder dumps. Out: a finding for each, with both call sites.
"""

from collections.abc import Iterator
from dataclasses import replace

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.detours import Detour, find_detour
from ncclprobe.analyze.match import Mismatch
from ncclprobe.analyze.sides import Side
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.frames import Frame, innermost_user_frame
from ncclprobe.model.report import BlockedOn, Cause, CodeLocation, Confidence, Finding

_FIXES = {
    Cause.COLLECTIVE_EXTRA: (
        "Let every rank of the group make this call and gate only what follows it (the print, the log): "
        "value = collective(x); if rank == 0: log(value)"
    ),
    Cause.COLLECTIVE_SKIPPED: "Let every rank make this call, or none: decide the branch from a value all ranks share.",
    Cause.COLLECTIVE_DESYNC: "Make all ranks issue the same calls in the same order; compare the two call sites.",
    Cause.COLLECTIVE_OP_MISMATCH: "Make all ranks issue the same collective here; compare the two call sites.",
    Cause.COLLECTIVE_SHAPE_MISMATCH: "Give the call the same sizes and types on all ranks: pad the last batch.",
}

_FIX_LOOP = (
    "Let all ranks leave the loop in the same step: agree on the number of steps, or on the stop, by a collective."
)
_BY_BRANCH = "a branch that only these ranks take leads to it"


def detect(case: Case) -> Iterator[Finding]:
    """One finding per group whose calls diverge."""
    for mismatch in case.mismatches:
        yield _finding(case, _settled(case, mismatch))


def _settled(case: Case, mismatch: Mismatch) -> Mismatch:
    """Where no side is most of the group, a line that only one side can reach still tells whose call is extra.

    Where the few are out of a loop that most are in, they left out what most still do there, whatever they do now.
    """
    detour = _detour(case, mismatch)
    if detour and detour.leaves_loop and mismatch.has_majority and mismatch.guilty == mismatch.guilty_side.ranks:
        return replace(mismatch, cause=Cause.COLLECTIVE_SKIPPED, basis=f"these ranks {detour.says}")
    proven = [side for side in mismatch.sides if case.branch_taken_by(side.ranks, side.call.stack)]
    if mismatch.has_majority or mismatch.is_of_parts or len(proven) != 1:
        return mismatch
    return replace(mismatch, cause=Cause.COLLECTIVE_EXTRA, guilty=proven[0].ranks, basis=_BY_BRANCH)


def _detour(case: Case, mismatch: Mismatch) -> Detour | None:
    """How the guilty got past the call that the others made."""
    guilty, other = mismatch.guilty_side, mismatch.other_side
    return find_detour(guilty.ranks[0], guilty.call.stack, other.call.stack, case.source)


def _finding(case: Case, mismatch: Mismatch) -> Finding:
    group = mismatch.timeline
    detour = _detour(case, mismatch) if mismatch.cause is Cause.COLLECTIVE_SKIPPED else None
    # With members unheard and no majority nobody can be named: the unheard may have done what either side did.
    is_unheard = bool(group.silent) and not mismatch.has_majority and mismatch.basis != _BY_BRANCH
    is_open = mismatch.is_open or is_unheard
    guilty = () if is_open else mismatch.guilty
    return Finding(
        cause=mismatch.cause,
        summary=_with_detour(_summary(case, mismatch), detour, mismatch.guilty),
        guilty_ranks=guilty,
        suspects=mismatch.guilty if is_open else (),
        confidence=_confidence(mismatch),
        victims=tuple(rank for rank in group.members if rank not in mismatch.guilty),
        blocked_on=_blocked_on(case, mismatch),
        where=(*((detour.place,) if detour else ()), *_where(case, mismatch)),
        evidence=(*_evidence(case, mismatch), *_cite_detour(detour)),
        fix=_FIX_LOOP if detour and detour.leaves_loop else _FIXES[mismatch.cause],
        next_steps=tuple(_next_steps(case, mismatch)),
    )


def _with_detour(summary: str, detour: Detour | None, guilty: tuple[int, ...]) -> str:
    longer = f"{summary} {'It' if len(guilty) == 1 else 'They'} {detour.says}." if detour else summary
    return longer if len(longer) <= 200 else summary


def _cite_detour(detour: Detour | None) -> Iterator[Citation]:
    if detour:
        says = f"the only way past line {detour.past} in that loop"
        yield cite(detour.artifact, f"line {detour.way.line}", detour.place.source_line or "", says)


def _summary(case: Case, mismatch: Mismatch) -> str:
    if mismatch.is_of_parts:
        op, label = mismatch.sides[0].call.signature.op, mismatch.timeline.group.label
        return f"Their parts in {op}, call {mismatch.seq} of group {label}, do not fit: {mismatch.basis}."[:200]
    guilty, other = mismatch.guilty_side, mismatch.other_side
    site = case.call_site(guilty.ranks, guilty.call.stack)
    at = f" at {site.file.rsplit('/', 1)[-1]}:{site.line}" if site else ""
    text = (
        f"{name_ranks(guilty.ranks).capitalize()} issued {_named(guilty, other)}{at} as call {mismatch.seq} "
        f"of group {mismatch.timeline.group.label}, where {name_ranks(other.ranks)} issued {_named(other, guilty)}."
    )
    return text if len(text) <= 200 else text[:197] + "..."


def _named(side: Side, other: Side) -> str:
    """The op, with sizes where the ops are the same."""
    signature = side.call.signature
    return signature.op if signature.op != other.call.signature.op else str(signature)


def _confidence(mismatch: Mismatch) -> Confidence:
    """Whole dumps of all members are direct proof of the divergence; its direction needs a majority and a reason."""
    is_whole = mismatch.is_whole
    told_direction = mismatch.cause is not Cause.COLLECTIVE_DESYNC and mismatch.has_majority and mismatch.has_past
    if is_whole and told_direction:
        return Confidence.CERTAIN
    is_told = mismatch.has_majority or is_whole or mismatch.basis == _BY_BRANCH
    return Confidence.PROBABLE if is_told else Confidence.POSSIBLE


def _blocked_on(case: Case, mismatch: Mismatch) -> BlockedOn:
    call = mismatch.guilty_side.call
    moments = [track.artifact.end_ns for track in mismatch.timeline.tracks.values() if track.artifact.end_ns]
    age_s = round((max(moments) - call.created_ns) / 1e9, 1) if moments and call.created_ns > 0 else None
    return BlockedOn(
        group=mismatch.timeline.group.label,
        seq=mismatch.seq,
        op=call.signature.op,
        age_s=age_s if age_s is not None and age_s >= 0 else None,
        timeout_s=call.timeout_ms / 1000 if call.timeout_ms else None,
    )


def _where(case: Case, mismatch: Mismatch) -> tuple[CodeLocation, ...]:
    """The guilty side's line first, then the line of those who kept the path."""
    ordered = sorted(mismatch.sides, key=lambda side: side is not mismatch.guilty_side)
    frames = ((side.ranks[0], case.call_site(side.ranks, side.call.stack)) for side in ordered)
    return tuple(case.locate(rank, frame) for rank, frame in frames if frame)


def _evidence(case: Case, mismatch: Mismatch) -> Iterator[Citation]:
    guilty, other = mismatch.guilty_side, mismatch.other_side
    yield _cite_call(mismatch, guilty)
    yield _cite_call(mismatch, other)
    branch = case.branch_taken_by(guilty.ranks, guilty.call.stack)
    if branch:
        artifact, found, frame = branch
        says = f"line {frame.line} runs only on {name_ranks(guilty.ranks)}"
        yield cite(artifact, f"line {found.line}", found.text, says)
    artifact = mismatch.timeline.tracks[other.ranks[0]].artifact
    yield cite(artifact, f"calls around {mismatch.seq}", mismatch.basis, "why that call is the one out of place")
    yield from _agreeing_stacks(case, guilty)


def _cite_call(mismatch: Mismatch, side: Side) -> Citation:
    track = mismatch.timeline.tracks[side.ranks[0]]
    frame = innermost_user_frame(side.call.stack)
    quote = f"{side.call.signature}" + (f" from {frame}" if frame else "")
    state = "ended" if side.call.is_completed else "has not ended"
    says = f"{name_ranks(side.ranks)} issued call {mismatch.seq}, which {state}"
    return cite(track.artifact, f"entry {side.call.entry}", quote, says)


def _agreeing_stacks(case: Case, side: Side) -> Iterator[Citation]:
    """Another kind of evidence: the guilty ranks' live stacks stand at the recorded call."""
    frame = innermost_user_frame(side.call.stack)
    for rank in side.ranks[:1]:
        position = case.positions.get(rank)
        if position and frame and position.user_frame and _is_same_line(position.user_frame, frame):
            says = f"rank {rank} still stands at that call"
            yield cite(position.artifact, "MainThread", str(position.user_frame), says)


def _is_same_line(one: Frame, other: Frame) -> bool:
    return (one.file, one.line) == (other.file, other.line)


def _next_steps(case: Case, mismatch: Mismatch) -> Iterator[str]:
    if mismatch.timeline.silent and not mismatch.has_majority:
        yield f"get the dumps of {name_ranks(mismatch.timeline.silent)}: they decide which side left the common path"
    side = mismatch.guilty_side
    frame = case.call_site(side.ranks, side.call.stack)
    if frame:
        yield f"open {frame.file} at line {frame.line} and see which ranks reach it"
    yield "stop the job, fix the line, restart from the last checkpoint: a job in this state cannot recover"


DETECTOR = Detector(causes=tuple(_FIXES), detect=detect)
