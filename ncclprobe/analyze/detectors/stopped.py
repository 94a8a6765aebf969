"""A rank is stopped by a signal (state T): it lives, and does nothing until somebody sends SIGCONT.

In: the kernel's state of each rank's process at two looks, and where its stack stands. Out: one finding.

The kernel's word is direct proof, wherever the rank was when it was stopped. `t` is another state: a debugger or tracer
holds the process, as we do ourselves for a moment.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.model.evidence import Artifact, Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.frames import innermost_user_frame
from ncclprobe.model.job import Rank, Role
from ncclprobe.model.report import Cause, CodeLocation, Confidence, Finding

_STOPPED = "T"
_FIX = (
    "Let it go on with kill -CONT, and find out who stopped it: a suspended job, a debugger, Ctrl-Z, a cgroup's agent."
)


def detect(case: Case) -> Iterator[Finding]:
    """Ranks that were stopped at every look."""
    stopped = [
        rank for rank in case.ranks.values() if rank.looks and all(look.state == _STOPPED for look in rank.looks)
    ]
    if stopped:
        yield _finding(case, stopped)


def _finding(case: Case, stopped: list[Rank]) -> Finding:
    ranks = tuple(rank.rank for rank in stopped)
    is_one = len(ranks) == 1
    pids = " ".join(str(rank.pid) for rank in stopped[:8])
    return Finding(
        cause=Cause.STUCK_IN_PYTHON,
        summary=f"{name_ranks(ranks).capitalize()} {'is' if is_one else 'are'} stopped by a signal (state T)."[:200],
        guilty_ranks=ranks,
        confidence=Confidence.CERTAIN if all(len(rank.looks) > 1 for rank in stopped) else Confidence.PROBABLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        where=tuple(_places(case, ranks)),
        evidence=tuple(_evidence(case, stopped)),
        next_steps=(f"on its host: kill -CONT {pids}",),
        fix=_FIX,
    )


def _places(case: Case, ranks: tuple[int, ...]) -> Iterator[CodeLocation]:
    for rank in ranks[:2]:
        position = case.positions.get(rank)
        frame = innermost_user_frame(position.stack) if position else None
        if frame is not None:
            yield case.locate(rank, frame)


def _evidence(case: Case, stopped: list[Rank]) -> Iterator[Citation]:
    for rank in stopped[:2]:
        artifact = _artifact(case, rank)
        if artifact is not None:
            states = ", ".join(f"state {look.state}, {look.cpu_s:.2f} s of CPU" for look in rank.looks)
            yield cite(artifact, f"process {rank.pid}", states, f"rank {rank.rank} is stopped, at every look")
    waiting = [position for position in case.positions.values() if position.phase.waits_for_ranks]
    others = [position for position in waiting if position.rank not in {rank.rank for rank in stopped}]
    for position in others[:1]:
        who = name_ranks(other.rank for other in others)
        yield cite(position.artifact, "MainThread", str(position.frame), f"{who}: {position.phase}")


def _artifact(case: Case, rank: Rank) -> Artifact | None:
    own = (s for s in case.evidence.processes if s.record.role is Role.RANK and s.record.rank == rank.rank)
    return next((sourced.artifact for sourced in own), None)


DETECTOR = Detector(causes=(Cause.STUCK_IN_PYTHON,), detect=detect)
