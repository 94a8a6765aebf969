"""A rank failed by itself: an exception, a signal, a fault of its GPU; told from logs.

In: fates. Out: a finding for the first that failed; those that failed later are listed, not blamed.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.fates import Fate, died_first
from ncclprobe.analyze.logs import cite_said
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.frames import innermost_user_frame
from ncclprobe.model.log import Died, DumpWritten, Failure, Raised, WorkTimeout
from ncclprobe.model.report import Cause, CodeLocation, Confidence, Finding

_FIXES = {
    Cause.RANK_CRASHED: "Fix what the exception says; a rank that fails must end the job: exit, do not catch it.",
    Cause.GPU_FAULT: "Take the GPU out of service: drain the host, read dmesg for Xid lines, reset or replace the GPU.",
    Cause.RANK_OOM_KILLED: "Give the rank more host memory, or let it use less: fewer loader workers.",
}
_BY_SIGNAL = {6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


def detect(case: Case) -> Iterator[Finding]:
    """At most one: the first."""
    first = died_first(case.fates)
    if first:
        yield _finding(case, first)


def _finding(case: Case, first: tuple[Fate, ...]) -> Finding:
    ranks = tuple(sorted(fate.rank for fate in first))
    lead = first[0]
    cause = _cause(lead)
    return Finding(
        cause=cause,
        summary=f"{name_ranks(ranks).capitalize()} failed first: {_how(lead)}."[:200],
        guilty_ranks=ranks,
        confidence=_confidence(case, first),
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        where=tuple(_places(first)),
        evidence=(*_evidence(first), *_agreeing(case, ranks)),
        next_steps=(f"read the log of {name_ranks(ranks)} from the first line that tells of the failure",),
        fix=_FIXES[cause],
    )


def _cause(fate: Fate) -> Cause:
    if fate.failure is Failure.GPU_FAULT:
        return Cause.GPU_FAULT
    ends = [said.record.what for said in (fate.said, *fate.also)]
    is_memory = any(isinstance(end, Died) and end.is_memory for end in ends)
    return Cause.RANK_OOM_KILLED if is_memory else Cause.RANK_CRASHED


def _how(fate: Fate) -> str:
    what = fate.said.record.what
    if isinstance(what, Raised):
        return f"{what.exception}: {what.message}" if what.exception else what.message
    assert isinstance(what, Died)
    if what.signal is not None:
        return f"ended by {_BY_SIGNAL.get(what.signal, f'signal {what.signal}')}"
    return what.reason or f"ended with exit status {what.exit_status}"


def _confidence(case: Case, first: tuple[Fate, ...]) -> Confidence:
    """The rank's own words are direct proof, if no other could have failed before it and others waited for it."""
    own = [fate for fate in first if isinstance(fate.said.record.what, Raised)]
    if len(first) > 1:
        return Confidence.POSSIBLE if len(first) * 2 > len(case.expected) else Confidence.PROBABLE
    if first[0].is_inferred:
        return Confidence.POSSIBLE
    what = first[0].said.record.what
    is_bare = isinstance(what, Died) and what.signal is None and not what.is_memory and not what.reason
    return Confidence.PROBABLE if own or not is_bare else Confidence.POSSIBLE


def _places(first: tuple[Fate, ...]) -> Iterator[CodeLocation]:
    for fate in first[:2]:
        what = fate.said.record.what
        frame = innermost_user_frame(what.stack) if isinstance(what, Raised) else None
        if frame:
            yield CodeLocation(rank=fate.rank, file=frame.file, line=frame.line, function=frame.function)


def _evidence(first: tuple[Fate, ...]) -> Iterator[Citation]:
    for fate in first[:2]:
        yield cite_said(fate.said, f"rank {fate.rank} failed")
        yield from (cite_said(said, f"rank {fate.rank} ended") for said in fate.also[:1])


def _agreeing(case: Case, ranks: tuple[int, ...]) -> Iterator[Citation]:
    """Others waited until their watchdogs gave up, and dumped; the failed rank did neither."""
    waited = [said for said in case.logs.of(WorkTimeout) if said.record.rank not in ranks]
    if waited:
        who = name_ranks({said.record.rank for said in waited if said.record.rank is not None})
        yield cite_said(waited[0], f"{who} waited until the timeout")
    dumps = list(case.logs.facts(DumpWritten))
    if dumps and not {what.rank for _, what in dumps} & set(ranks):
        yield cite_said(dumps[0][0], f"the others wrote a dump, {name_ranks(ranks)} did not")


DETECTOR = Detector(causes=tuple(_FIXES), detect=detect)
