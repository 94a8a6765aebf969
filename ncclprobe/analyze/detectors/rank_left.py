"""Ranks ended in good order while others still communicate: uneven batches, an early stop; told from logs.

In: lines of good ends, destroyed communicators. Out: a finding when others wait for those that left.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.logs import Said, cite_said, is_before
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import CommEvent, Died, Left, WorkTimeout
from ncclprobe.model.report import Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """Only those that left before the others gave up: a rank also leaves after it."""
    waiting = {said.record.rank: said for said in case.logs.of(WorkTimeout) if said.record.rank is not None}
    left = {
        said.record.rank: said
        for said in _ends(case)
        if said.record.rank is not None and said.record.rank not in waiting and _is_early(said, waiting)
    }
    # When everybody says so the job is over; when nobody waits nothing hangs.
    if left and waiting:
        yield _finding(case, left, waiting)


def _ends(case: Case) -> Iterator[Said]:
    yield from case.logs.of(Left)
    for said, what in case.logs.facts(CommEvent):
        if what.event == "destroy-complete" and what.size == case.world_size:
            yield said
    for said, died in case.logs.facts(Died):
        if died.exit_status == 0:
            yield said


def _is_early(said: Said, waiting: dict[int, Said]) -> bool:
    return all(is_before(said, timeout) is not False for timeout in waiting.values())


def _finding(case: Case, left: dict[int, Said], waiting: dict[int, Said]) -> Finding:
    ranks = tuple(sorted(left))
    is_whole = len(left) + len(waiting) == len(case.expected)
    first = waiting[min(waiting)]
    return Finding(
        cause=Cause.RANK_EXITED,
        summary=(
            f"{name_ranks(ranks).capitalize()} ended in good order while {name_ranks(waiting)} still "
            "communicate and wait for them."
        )[:200],
        guilty_ranks=ranks,
        confidence=Confidence.PROBABLE if is_whole else Confidence.POSSIBLE,
        victims=tuple(sorted(waiting)),
        evidence=(
            *(cite_said(left[rank], f"rank {rank} ended") for rank in ranks[:3]),
            cite_said(first, f"{name_ranks(waiting)} wait"),
        ),
        next_steps=("compare how many batches each rank had",),
        fix="Give all ranks the same number of steps (drop_last, Join), or agree on the stop with a collective.",
    )


DETECTOR = Detector(causes=(Cause.RANK_EXITED,), detect=detect)
