"""The kernel killed a rank, or a worker of one, for memory.

In: the kernel logs. Out: a finding for each killed pid that belonged to the job.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.model.kernel import OomKill
from ncclprobe.model.records import Sourced
from ncclprobe.model.report import Cause, Confidence, Finding

_FIX = "Give the rank more host memory, or let it use less: fewer loader workers, smaller prefetch."


def detect(case: Case) -> Iterator[Finding]:
    """The kernel's own line with the pid is direct proof."""
    for sourced in case.evidence.oom_kills:
        owner = _owner(case, sourced)
        if owner is not None:
            yield _finding(case, sourced, owner)


def _owner(case: Case, sourced: Sourced[OomKill]) -> int | None:
    """The rank whose own pid, or whose child's, the kernel killed."""
    for rank in case.ranks.values():
        if rank.host == sourced.artifact.host and sourced.record.pid in (rank.pid, *rank.children):
            return rank.rank
    return None


def _finding(case: Case, sourced: Sourced[OomKill], rank: int) -> Finding:
    kill = sourced.record
    says = f"the kernel killed process {kill.pid} of rank {rank} for memory at {kill.when}"
    return Finding(
        cause=Cause.RANK_OOM_KILLED,
        summary=f"The kernel killed process {kill.pid} ({kill.command}) of rank {rank} for memory.",
        guilty_ranks=(rank,),
        confidence=Confidence.CERTAIN,
        victims=tuple(other for other in case.expected if other != rank),
        evidence=(cite(sourced.artifact, f"line {kill.line}", kill.quote, says),),
        next_steps=("compare the job's memory limit with what a rank needs: the kill line shows anon-rss",),
        fix=_FIX,
    )


DETECTOR = Detector(causes=(Cause.RANK_OOM_KILLED,), detect=detect)
