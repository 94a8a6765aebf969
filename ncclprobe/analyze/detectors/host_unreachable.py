"""A host does not answer and none of its ranks speaks through any other evidence.

In: the hosts asked and the ranks heard. Out: a finding naming the ranks that can only be on that host.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.logs import Said, cite_said
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import HostDown, NetworkError, WorkTimeout
from ncclprobe.model.report import Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """A host that the collection could not reach; else one that a transcript shows to be down."""
    yield from _unreached(case)
    down = list(case.logs.facts(HostDown))
    hosts = sorted({what.host for _, what in down})
    if len(hosts) == 1:
        yield from _down(case, hosts[0], [said for said, _ in down])


def _down(case: Case, host: str, said: list[Said]) -> Iterator[Finding]:
    """Its ranks are those known to run there; else the ones nobody heard, when its peers lost them."""
    known = case.ranks_of_host(host)
    ranks = known or case.missing
    waited = [s for s in case.logs.of(WorkTimeout) if s.record.rank not in ranks]
    lost = [s for s in case.logs.of(NetworkError) if s.record.rank not in ranks]
    if not ranks or not set(ranks) <= {*case.missing, *known} or any(s.record.rank in ranks for s in waited):
        return
    yield Finding(
        cause=Cause.HOST_UNREACHABLE,
        summary=f"{host} is down, and {name_ranks(ranks)}, which gave no log, can only be there."[:200],
        guilty_ranks=ranks,
        confidence=Confidence.PROBABLE if waited or lost else Confidence.POSSIBLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        evidence=(
            *(cite_said(s, f"{host} does not answer") for s in said[:2]),
            *(cite_said(s, "a peer lost it") for s in lost[:1]),
        ),
        next_steps=(f"reach {host} another way (its console, the scheduler) and see whether it is up",),
        fix="Bring the host back or replace it, then restart from the last checkpoint.",
    )


def _unreached(case: Case) -> Iterator[Finding]:
    """With one host that gave nothing every missing rank is on it; with two nobody can say which."""
    silent = case.unreachable_hosts
    if len(silent) != 1 or len(case.silent_hosts) != 1 or not case.missing or not case.ranks or case.mismatches:
        return
    host = silent[0]
    gap = next((gap for outcome in case.evidence.hosts if outcome.name == host for gap in outcome.gaps), None)
    yield Finding(
        cause=Cause.HOST_UNREACHABLE,
        summary=f"{name_ranks(case.missing).capitalize()} can only be on {host}, which does not answer."[:200],
        guilty_ranks=case.missing,
        confidence=Confidence.POSSIBLE,
        victims=tuple(case.ranks),
        evidence=(
            Citation(
                artifact="manifest.json",
                place=f"host {host}",
                quote=gap.why[:200] if gap else "no answer",
                says="the host did not answer; that may also be the way to it only",
            ),
        ),
        next_steps=(f"reach {host} another way (its console, the scheduler) and see whether it is up",),
        fix="Bring the host back or replace it, then restart from the last checkpoint.",
    )


DETECTOR = Detector(causes=(Cause.HOST_UNREACHABLE,), detect=detect)
