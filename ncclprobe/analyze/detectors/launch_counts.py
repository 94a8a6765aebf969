"""NCCL's launch counts: who has launched fewer operations than the other members, at every look.

In: RAS reports, joined. Out: a finding for the ranks that lag, or that all launch on.

One snapshot of a running job differs by rights: only a difference that two looks share, with nobody moving between
them, is a hang. A sole look names nobody.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.components import components
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.launches import CommunicatorLooks
from ncclprobe.analyze.outside import outside_of_waits
from ncclprobe.analyze.whereabouts import find_whereabouts
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import BlockedOn, Cause, Confidence, Finding

Lag = tuple[CommunicatorLooks, str, tuple[int, ...]]
Node = int | tuple[str, int]


def detect(case: Case) -> Iterator[Finding]:
    """Recorders and watchdogs tell more: what they name is not named again from counts."""
    comms = [comm for comm in case.launches.communicators if comm.looks]
    if comms and all(comm.has_moved for comm in comms):
        yield _moving(case, comms)
        return
    if case.mismatches or case.waits.roots:
        return
    lags = [(comm, *lag) for comm in comms if not comm.has_moved and (lag := comm.lagging())]
    if lags:
        yield _root(case, lags)


def _root(case: Case, lags: list[Lag]) -> Finding:
    """A rank that is behind in one communicator may wait for another in a second one: who waits for nobody leads."""
    ranks = [_global(case, comm, members) for comm, _, members in lags]
    if len(lags) == 1 or () in ranks:
        finding = _lagging(case, *lags[0])
        return finding if len(lags) == 1 else _only_suspected(finding)
    graph: dict[Node, list[Node]] = defaultdict(list)
    for number, (comm, _, members) in enumerate(lags):
        node = (comm.id, number)
        graph[node].extend(ranks[number])
        ahead = _global(case, comm, tuple(m for m in comm.process_of if m not in members))
        for rank in ahead:
            graph[rank].append(node)
    for component in components(dict(graph)):
        is_closed = all(target in component for node in component for target in graph.get(node, ()))
        found = [n for n, those in enumerate(ranks) if set(those) & set(component)]
        if is_closed and found:
            finding = _lagging(case, *lags[found[0]])
            return finding if len(component) == 1 else _only_suspected(finding)
    return _only_suspected(_lagging(case, *lags[0]))


def _only_suspected(finding: Finding) -> Finding:
    suspects = finding.guilty_ranks or finding.suspects
    return replace(finding, guilty_ranks=(), suspects=suspects, confidence=Confidence.POSSIBLE)


def _moving(case: Case, comms: list[CommunicatorLooks]) -> Finding:
    return Finding(
        cause=Cause.PROGRESSING,
        summary="Nothing hangs: every rank launched more collectives between the two RAS looks.",
        guilty_ranks=(),
        confidence=Confidence.PROBABLE if not case.standings else Confidence.POSSIBLE,
        evidence=tuple(_cite_looks(comms[0])),
        next_steps=("if it is slow rather than stuck, look again after a longer time",),
    )


def _cite_looks(comm: CommunicatorLooks) -> Iterator[Citation]:
    for look, counts in (comm.looks[0], comm.looks[-1]):
        op = max(counts, key=lambda name: counts[name].furthest, default=None)
        if op:
            quote = f"{op}: {counts[op].furthest} launched"
            yield cite(look.artifact, f"communicator {comm.id}", quote, "the furthest member")


def _lagging(case: Case, comm: CommunicatorLooks, op: str, members: tuple[int, ...]) -> Finding:
    behind = _global(case, comm, members)
    ranks = outside_of_waits(case, behind)
    if len(ranks) < len(behind):
        members = tuple(member for member in members if _global(case, comm, (member,))[0] in ranks)
    is_minority = comm.size is not None and 2 * len(members) < comm.size
    where = find_whereabouts(case, ranks)
    is_named = comm.is_frozen and bool(ranks) and is_minority
    look, counts = comm.looks[-1]
    missing = counts[op].furthest
    return Finding(
        # Where a rank is in another collective its count tells only that the sequences disagree.
        cause=Cause.COLLECTIVE_DESYNC if where.cause is Cause.COLLECTIVE_SKIPPED else where.cause,
        summary=(
            f"{name_ranks(members).capitalize()} of communicator {comm.id} launched fewer {op} than the others, at "
            f"{len(comm.looks)} looks: {where.doing}."
        )[:200],
        guilty_ranks=ranks if is_named else (),
        suspects=() if is_named else ranks or members,
        confidence=Confidence.PROBABLE if is_named and where.shown_by else Confidence.POSSIBLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        blocked_on=BlockedOn(group=f"communicator {comm.id}", seq=missing, op=op),
        where=where.places,
        evidence=(
            cite(look.artifact, f"communicator {comm.id}", f"{op}: others at {missing}", f"{name_ranks(members)} lag"),
            *where.citations,
        ),
        next_steps=(f"look at the stacks of {name_ranks(ranks or members)}: py-spy dump --pid PID on their hosts",),
        fix="See what that rank does instead: its stack and its log say why it did not come.",
    )


def _global(case: Case, comm: CommunicatorLooks, members: tuple[int, ...]) -> tuple[int, ...]:
    """Global ranks: of the communicator of all ranks they are the members' own numbers."""
    if comm.size is not None and comm.size == case.world_size and comm.id == getattr(case.launches.world, "id", None):
        return members
    known = {process: rank for rank, process in case.launches.process_of.items()}
    ranks = []
    for member in members:
        host, pid = comm.process_of.get(member, (None, None))
        rank = known.get((host, pid)) if pid is not None else None
        ranks.append(rank if rank is not None else case.logs.rank_with(host, pid))
    return tuple(sorted(rank for rank in ranks if rank is not None)) if None not in ranks else ()


DETECTOR = Detector(causes=(Cause.PROGRESSING, Cause.STUCK_IN_PYTHON, Cause.STUCK_IN_CUDA), detect=detect)
