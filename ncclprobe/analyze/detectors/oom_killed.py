"""The kernel killed a rank, or a worker of one, for memory.

In: the kernel logs. Out: a finding for each killed pid that belonged to the job.

A rank that was killed is gone, and its pid with it. But a launcher starts its ranks one after the other, so the pid of
the one that is missing lies between those of its neighbours.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.devices import host_of_line, owner_of_process
from ncclprobe.analyze.onset import find_onset, nearness
from ncclprobe.model.kernel import OomKill
from ncclprobe.model.log import WorkTimeout
from ncclprobe.model.records import Sourced
from ncclprobe.model.report import Cause, Confidence, Finding

_FIX = "Give the rank more host memory, or let it use less: fewer loader workers, smaller prefetch."
_NEAR = 64  # pids: a launcher does little between two ranks


def detect(case: Case) -> Iterator[Finding]:
    """The kernel's own line with a pid that is known is direct proof; a pid that fits the one gap is an inference."""
    onset, timed_out = find_onset(case.logs), {said.record.rank for said in case.logs.of(WorkTimeout)}
    for sourced in case.evidence.oom_kills:
        if nearness(sourced.record.when_ns, onset).is_far:
            continue  # of an earlier run, or of the next one
        owner = _owner(case, sourced)
        if owner is not None and owner in timed_out and not _is_child(case, sourced, owner):
            continue  # it lived to time out itself: that it was killed then is an echo
        if owner is not None:
            yield _finding(case, sourced, owner, Confidence.CERTAIN)
            continue
        fitting = _alike(case, sourced) or [r for r in (*case.missing, *case.gone) if _fits(case, sourced, r)]
        if len(fitting) == 1:
            yield _finding(case, sourced, fitting[0], Confidence.PROBABLE)


def _owner(case: Case, sourced: Sourced[OomKill]) -> int | None:
    """The rank whose own pid, or whose child's, the kernel killed."""
    host = host_of_line(case, sourced.record.host, sourced.artifact)
    return owner_of_process(case, host, sourced.record.pid)


def _is_child(case: Case, sourced: Sourced[OomKill], owner: int) -> bool:
    return owner in case.ranks and sourced.record.pid in case.ranks[owner].children


def _alike(case: Case, sourced: Sourced[OomKill]) -> list[int]:
    """Of a log without a host: the ranks with that pid on whichever host, but for those that lived to time out."""
    if host_of_line(case, sourced.record.host, sourced.artifact) is not None:
        return []
    timed_out = {said.record.rank for said in case.logs.of(WorkTimeout)}
    alike = {rank for (_, pid), rank in case.logs.rank_of.items() if pid == sourced.record.pid}
    return sorted(alike - timed_out) if timed_out and set(case.expected) <= case.logs.heard else []


def _fits(case: Case, sourced: Sourced[OomKill], missing: int) -> bool:
    """Whether the killed pid lies between the pids of the nearest ranks on that host, and close to one of them."""
    pids = {r.rank: r.pid for r in case.ranks.values() if r.host == sourced.artifact.host and r.pid is not None}
    below = max((pid for rank, pid in pids.items() if rank < missing), default=None)
    above = min((pid for rank, pid in pids.items() if rank > missing), default=None)
    killed = sourced.record.pid
    is_between = (below is None or below < killed) and (above is None or killed < above)
    return is_between and any(abs(killed - pid) <= _NEAR for pid in (below, above) if pid is not None)


def _finding(case: Case, sourced: Sourced[OomKill], rank: int, confidence: Confidence) -> Finding:
    kill = sourced.record
    says = f"the kernel killed process {kill.pid} of rank {rank} for memory at {kill.when}"
    return Finding(
        cause=Cause.RANK_OOM_KILLED,
        summary=f"The kernel killed process {kill.pid} ({kill.command}) of rank {rank} for memory.",
        guilty_ranks=(rank,),
        confidence=confidence,
        victims=tuple(other for other in case.expected if other != rank),
        evidence=(cite(sourced.artifact, f"line {kill.line}", kill.quote, says),),
        next_steps=("compare the job's memory limit with what a rank needs: the kill line shows anon-rss",),
        fix=_FIX,
    )


DETECTOR = Detector(causes=(Cause.RANK_OOM_KILLED,), detect=detect)
