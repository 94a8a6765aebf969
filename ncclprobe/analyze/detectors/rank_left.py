"""Ranks ended in good order while others still communicate: uneven batches, an early stop; told from logs.

In: lines of good ends, destroyed communicators; those that wait for them, or lost them. Out: a finding.

Under NCCL the others wait until their watchdogs give up; under gloo they see a closed connection, call it an error and
end: then the one rank without an error is the one to blame.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.logs import Said, cite_said, is_before
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import CommEvent, Died, Left, PeerLost, WorkTimeout
from ncclprobe.model.report import Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """Only those that left before the others gave up: a rank also leaves after it."""
    waiting = {said.record.rank: said for said in case.logs.of(WorkTimeout) if said.record.rank is not None}
    ended = {said.record.rank: said for said in _ends(case) if said.record.rank not in (None, *waiting)}
    lost = {said.record.rank: said for said in _losses(case) if said.record.rank not in (None, *waiting, *ended)}
    gave_up = {rank: said for rank, said in (*waiting.items(), *lost.items()) if rank is not None}
    left = {rank: said for rank, said in ended.items() if rank is not None and _is_early(said, gave_up)}
    victims = {rank: cite_said(said, f"rank {rank} waited for it, or lost it") for rank, said in gave_up.items()}
    victims.update(_live_victims(case, left))
    # When everybody says so the job is over; when nobody waits nothing hangs.
    if left and victims:
        yield _finding(case, left, victims)


def _ends(case: Case) -> Iterator[Said]:
    yield from case.logs.of(Left)
    for said, what in case.logs.facts(CommEvent):
        if what.event == "destroy-complete" and what.size == case.world_size:
            yield said
    for said, died in case.logs.facts(Died):
        if died.exit_status == 0:
            yield said


def _losses(case: Case) -> Iterator[Said]:
    """Lost connections to other ranks, not to the store."""
    for said, what in case.logs.facts(PeerLost):
        if not what.is_store:
            yield said


def _is_early(said: Said, gave_up: dict[int, Said]) -> bool:
    return all(is_before(said, other) is not False for other in gave_up.values())


def _live_victims(case: Case, left: dict[int, Said]) -> dict[int, Citation]:
    """Ranks that live and wait, where those that left are gone."""
    if not left or not set(left) <= set(case.gone):
        return {}
    waiting = (position for position in case.positions.values() if position.phase.waits_for_ranks)
    return {
        position.rank: cite(position.artifact, "MainThread", str(position.frame), f"rank {position.rank} waits")
        for position in waiting
    }


def _finding(case: Case, left: dict[int, Said], victims: dict[int, Citation]) -> Finding:
    ranks = tuple(sorted(left))
    is_whole = len(left) + len(victims) == len(case.expected)
    return Finding(
        cause=Cause.RANK_EXITED,
        summary=(
            f"{name_ranks(ranks).capitalize()} ended in good order while {name_ranks(victims)} still "
            "communicate and wait for them."
        )[:200],
        guilty_ranks=ranks,
        confidence=Confidence.PROBABLE if is_whole else Confidence.POSSIBLE,
        victims=tuple(sorted(victims)),
        evidence=(*(cite_said(left[rank], f"rank {rank} ended") for rank in ranks[:3]), victims[min(victims)]),
        next_steps=("compare how many batches each rank had",),
        fix="Give all ranks the same number of steps (drop_last, Join), or agree on the stop with a collective.",
    )


DETECTOR = Detector(causes=(Cause.RANK_EXITED,), detect=detect)
