"""Processes that NCCL's RAS service has given up as dead.

In: RAS reports, watchdog lines. Out: a finding. RAS calls a process dead a minute after it last answered, over the
network: one is a process that ended, all of a host may be the host or its network.
"""

from collections import defaultdict
from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.launches import Look
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import WorkTimeout
from ncclprobe.model.report import Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """Of the last look. A rank that printed a timeout lived until then: its death is an echo."""
    look = case.launches.looks[-1] if case.launches.looks else None
    if look is None or not look.record.dead:
        return
    rank_of = {process: rank for rank, process in case.launches.process_of.items()}
    timed_out = {said.record.rank for said in case.logs.of(WorkTimeout)}
    dead = {process: rank for process in look.record.dead if (rank := rank_of.get(process)) is not None}
    first = {process: rank for process, rank in dead.items() if rank not in timed_out}
    if first and 2 * len(first) <= len(case.expected):
        yield _finding(case, look, first)


def _finding(case: Case, look: Look, dead: dict[tuple[str, int], int]) -> Finding:
    ranks = tuple(sorted(dead.values()))
    host = _whole_host(case, dead)
    timed_out = {said.record.rank for said in case.logs.of(WorkTimeout)}
    where = f"every process of {host} that it knows, " if host else ""
    return Finding(
        cause=Cause.HOST_UNREACHABLE if host else Cause.RANK_CRASHED,
        summary=f"RAS has given up {where}{name_ranks(ranks)} as dead: no answer for a minute."[:200],
        guilty_ranks=ranks,
        confidence=Confidence.PROBABLE if timed_out and not set(case.missing) - set(ranks) else Confidence.POSSIBLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        evidence=tuple(
            cite(look.artifact, "DEAD", f"process {pid} on {where}", f"rank {rank} does not answer RAS")
            for (where, pid), rank in sorted(dead.items(), key=lambda item: item[1])[:3]
        ),
        next_steps=(
            f"see how {name_ranks(ranks)} ended: the launcher's last lines, dmesg on the host; ping the host itself",
        ),
        fix="Restart without that host or process once it is known how it ended.",
    )


def _whole_host(case: Case, dead: dict[tuple[str, int], int]) -> str | None:
    """The host all of whose ranks are dead, where it has more than one and another host has ranks as well."""
    by_host: dict[str | None, set[int]] = defaultdict(set)
    for rank, (host, _) in case.launches.process_of.items():
        by_host[host].add(rank)
    hosts = {host for host, _ in dead}
    host = hosts.pop() if len(hosts) == 1 else None
    is_whole = len(dead) > 1 and by_host[host] == set(dead.values()) and len(dead) < len(case.expected)
    return host if is_whole else None


DETECTOR = Detector(causes=(Cause.RANK_CRASHED, Cause.HOST_UNREACHABLE), detect=detect)
