"""Nothing hangs: every rank went on while it was looked at.

In: positions, recorders and logs at two looks. Out: a finding when no rank stood still.

A recorder is the better witness: a rank that issued a call after the first look, or whose second dump shows more than
its first, had finished what it was in. Stacks that change, and steps that are logged, prove less. A CPU that is busy
proves nothing: a rank that waits for a GPU spins. Nor does a line that counts nothing: a heartbeat may outlive the
training.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.logs import Said, cite_said
from ncclprobe.analyze.looks import Pair
from ncclprobe.model.collectives import Recording
from ncclprobe.model.evidence import Citation
from ncclprobe.model.log import TRAINING, Activity
from ncclprobe.model.records import Sourced
from ncclprobe.model.report import Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """Only when every expected rank was seen to move; a rank nobody saw could be the one that hangs."""
    if case.missing or case.silent_hosts or not case.expected:
        return
    recorded = list(_recorded_moves(case))
    if len(recorded) == len(case.expected):
        yield _finding(recorded, Confidence.CERTAIN)
        return
    moved = {**_stack_moves(case), **_logged_moves(case)}
    if set(moved) >= set(case.expected):
        yield _finding([moved[rank] for rank in case.expected], Confidence.PROBABLE)


def _stack_moves(case: Case) -> dict[int, Citation]:
    moved = (position for position in case.positions.values() if position.is_still is False)
    return {
        p.rank: cite(p.artifact, "both looks", str(p.frame), f"rank {p.rank} moved between the looks") for p in moved
    }


def _logged_moves(case: Case) -> dict[int, Citation]:
    """By rank, the line with a later step than any before, in what its log has got between the looks."""
    steps: dict[int, dict[int | None, list[tuple[int, Said]]]] = {}
    for said, what in case.logs.facts(Activity):
        rank, step = said.artifact.rank, what.step
        if rank is not None and step is not None and what.phase == TRAINING:
            steps.setdefault(rank, {}).setdefault(said.artifact.look, []).append((step, said))
    moved = {}
    for rank, looks in steps.items():
        came = sorted(looks.get(2, ()), key=lambda pair: pair[0])
        known = max((step for step, _ in looks.get(None, ())), default=came[0][0] if came else 0)
        if came and came[-1][0] > known:
            moved[rank] = cite_said(came[-1][1], f"rank {rank} has finished another step since the first look")
    return moved


def _recorded_moves(case: Case) -> Iterator[Citation]:
    """One citation for each rank whose recorder went on after the first look at it, or at its process."""
    between = {pair.rank: pair for pair in case.looks.moved}
    of_rank: dict[int, Citation] = {}
    for sourced in case.evidence.recordings:
        rank = sourced.artifact.rank
        if rank is not None and rank not in of_rank:
            citation = _cite_pair(between[rank]) if rank in between else _cite_newer(case, rank, sourced)
            if citation:
                of_rank[rank] = citation
    for _, citation in sorted(of_rank.items()):
        yield citation


def _cite_pair(pair: Pair) -> Citation:
    quote = f"{pair.calls} calls issued and {pair.ended} ended since {pair.earlier.path}"
    return cite(pair.later, "both looks", quote, f"rank {pair.rank} goes on")


def _cite_newer(case: Case, rank: int, sourced: Sourced[Recording]) -> Citation | None:
    """A call newer than the first look at the process."""
    looks = case.ranks[rank].looks if rank in case.ranks else ()
    newest_ns = max(sourced.record.created_ns, default=0)
    if not looks or newest_ns <= looks[0].time_ns:
        return None
    quote = f"a call issued {(newest_ns - looks[0].time_ns) / 1e9:.2f} s after the first look"
    return cite(sourced.artifact, "newest entry", quote, f"rank {rank} goes on")


def _finding(citations: list[Citation], confidence: Confidence) -> Finding:
    return Finding(
        cause=Cause.PROGRESSING,
        summary="Nothing hangs: every rank went on between the two looks.",
        guilty_ranks=(),
        confidence=confidence,
        evidence=tuple(citations[:3]),
        next_steps=("if it is slow rather than stuck, look again with a longer --interval",),
    )


DETECTOR = Detector(causes=(Cause.PROGRESSING,), detect=detect)
