"""The others gave up while a rank was at work that is counted, went on all the time, and took longer than they wait.

In: exceptions of gloo, which has no watchdog, and lines that count (`shard 7/16 written`). Out: at most one finding.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.logs import Said, cite_said
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.frames import innermost_user_frame
from ncclprobe.model.log import TRAINING, Activity, Raised
from ncclprobe.model.report import BlockedOn, Cause, CodeLocation, Confidence, Finding

_GAVE_UP = re.compile(r"Timed out waiting (\d{1,12}) ?ms for (?:recv|send) operation")
_DEFAULT_MS = 1_800_000  # of gloo: a shorter one was chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Counted work of a rank: its first and last line, and how long that took, in ms."""

    rank: int
    first: Said
    last: Said
    took_ms: float


def detect(case: Case) -> Iterator[Finding]:
    """Only when all ranks but the one at work gave up, or lost the connection to one that had."""
    waits = dict(_waits(case))
    works = [work for rank in case.expected if rank not in waits and (work := _work(case, rank))]
    timeout_ms = min((ms for _, ms in waits.values()), default=_DEFAULT_MS)
    if len(works) != 1 or timeout_ms >= _DEFAULT_MS or works[0].took_ms < timeout_ms:
        return
    if all(rank == works[0].rank or _has_followed(case, rank) for rank in case.expected):
        yield _finding(case, works[0], waits, timeout_ms)


def _has_followed(case: Case, rank: int) -> bool:
    """Whether the rank failed, and only because others had."""
    raised = [said.record.what for said in case.logs.of_rank(rank, Raised)]
    return bool(raised) and all(isinstance(what, Raised) and what.failure.is_echo for what in raised)


def _waits(case: Case) -> Iterator[tuple[int, tuple[Said, int]]]:
    """Rank -> the line in which it gave up, and after how many ms."""
    for said, what in case.logs.facts(Raised):
        found = _GAVE_UP.search(what.message)
        if found and said.record.rank is not None:
            yield said.record.rank, (said, int(found[1]))


def _work(case: Case, rank: int) -> _Work | None:
    """What the rank did last, when a clock shows that it went on and for how long."""
    said = case.logs.of_rank(rank, Activity)
    alike = [one for one in said if _label(one) == _label(said[-1])]
    if len(alike) < 2 or _label(alike[-1])[1] is None or _label(alike[-1])[0] == TRAINING:
        return None
    first, last = alike[0], alike[-1]
    if first.record.when_ns is None or last.record.when_ns is None:
        return None
    return _Work(rank=rank, first=first, last=last, took_ms=(last.record.when_ns - first.record.when_ns) / 1e6)


def _label(said: Said) -> tuple[str, int | None]:
    """The phase, and how many parts the work has."""
    what = said.record.what
    assert isinstance(what, Activity)
    return what.phase, what.progress[1] if what.progress else None


def _finding(case: Case, work: _Work, waits: dict[int, tuple[Said, int]], timeout_ms: int) -> Finding:
    phase, _ = _label(work.last)
    took = f"{work.took_ms / 1000:g} s"
    return Finding(
        cause=Cause.TIMEOUT_TOO_SHORT,
        summary=(
            f"{name_ranks([work.rank]).capitalize()} is not stuck: {phase} went on for {took}, while "
            f"{name_ranks(waits)} gave up after {timeout_ms / 1000:g} s."
        )[:200],
        guilty_ranks=(work.rank,),
        confidence=Confidence.PROBABLE,
        victims=tuple(sorted(waits)),
        blocked_on=BlockedOn(group="unknown", seq=None, op="unknown", timeout_s=timeout_ms / 1000),
        where=tuple(_places(case, work.rank)),
        evidence=(
            cite_said(work.first, f"rank {work.rank} is at work that is counted"),
            cite_said(work.last, f"and went on, {took} later"),
            *(cite_said(said, f"rank {rank} gave up waiting") for rank, (said, _) in sorted(waits.items())[:1]),
        ),
        next_steps=(f"compare how long this work takes with the timeout of {timeout_ms / 1000:g} s",),
        fix="Give the group that waits for this work a longer timeout, or do the work outside of the training loop.",
    )


def _places(case: Case, rank: int) -> Iterator[CodeLocation]:
    """Where the rank itself was told that the others had gone."""
    for said in case.logs.of_rank(rank, Raised):
        frame = innermost_user_frame(said.record.what.stack) if isinstance(said.record.what, Raised) else None
        if frame:
            yield case.locate(rank, frame)
            return


DETECTOR = Detector(causes=(Cause.TIMEOUT_TOO_SHORT,), detect=detect)
