"""One verdict out of many findings.

In: a `Case`. Out: the `Report`. Direct proof of death explains an absence; a divergence explains the waits that follow
from it; what is left is ordered by how sure it is. When nothing is sure enough the verdict is `inconclusive`.
"""

from collections.abc import Iterable
from dataclasses import replace

from ncclprobe.analyze.case import Case, build_case
from ncclprobe.analyze.chronicle import chronicle
from ncclprobe.analyze.detector import find_detectors
from ncclprobe.analyze.slices import Slices, find_slices
from ncclprobe.analyze.summary import gpus_of, groups_of, ranks_of
from ncclprobe.analyze.unknowns import find_unknowns
from ncclprobe.analyze.victims import Waiting, find_waiting
from ncclprobe.model.evidence import Gap
from ncclprobe.model.folding import fold, name_ranks
from ncclprobe.model.manifest import Outcome
from ncclprobe.model.records import Evidence
from ncclprobe.model.report import (
    SCHEMA_VERSION,
    Cause,
    Confidence,
    Coverage,
    Finding,
    Report,
    Status,
    Verdict,
)

# What explains what: a finding of an earlier group explains those of later ones.
_ORDER = (
    {Cause.RANK_OOM_KILLED, Cause.RANK_CRASHED, Cause.RANK_EXITED, Cause.GPU_FAULT},
    {Cause.INIT_MISCONFIGURED, Cause.RANK_NEVER_JOINED, Cause.KNOWN_NCCL_BUG},
    {
        Cause.COLLECTIVE_EXTRA,
        Cause.COLLECTIVE_SKIPPED,
        Cause.COLLECTIVE_OP_MISMATCH,
        Cause.COLLECTIVE_SHAPE_MISMATCH,
        Cause.COLLECTIVE_DESYNC,
    },
    {Cause.HOST_UNREACHABLE, Cause.NETWORK_FAULT, Cause.TIMEOUT_TOO_SHORT},
    {Cause.PROGRESSING},
)
_FAULTS = (Cause.GPU_FAULT, Cause.NETWORK_FAULT)
_MAX_SUMMARY = 200  # characters, by contract
_NEXT_WITHOUT_DUMPS = "run it again with --live-dump: the recorders show which call each rank is in"


def analyze(evidence: Evidence) -> Report:
    """The whole analysis. The same evidence gives the same report, whatever the order of files and hosts."""
    case = build_case(evidence)
    slices = find_slices(case)
    found = [finding for detector in find_detectors() for finding in detector.detect(case)]
    findings = sorted((_described(finding, slices) for finding in _in_doubt(found)), key=_rank_of_finding)
    of_hosts = (gap for host in evidence.hosts for gap in host.gaps)
    gaps = tuple(sorted({*case.evidence.gaps, *find_unknowns(case), *of_hosts}))
    status = _status(case, gaps)
    lead = findings[0] if findings else None
    waiting = find_waiting(case, (lead.guilty_ranks or lead.suspects) if lead else ())
    if lead is not None and (lead.guilty_ranks or not lead.suspects):
        verdict = _with_victims(_verdict(case, lead, findings[1:], status, slices), lead, waiting)
    else:
        verdict = _inconclusive(case, lead, status)
    return Report(
        schema_version=SCHEMA_VERSION,
        status=status,
        verdict=verdict,
        findings=tuple(findings[1:] if verdict.cause is not Cause.INCONCLUSIVE else findings),
        ranks=ranks_of(case),
        groups=groups_of(case, waiting),
        gpus=gpus_of(case),
        timeline=chronicle(case),
        gaps=gaps,
        coverage=_coverage(case),
    )


def _in_doubt(findings: list[Finding]) -> list[Finding]:
    """A collective stalls by itself only where no fault shows: beside one that may be the reason it is possible."""
    if not any(finding.cause in _FAULTS and finding.guilty_ranks for finding in findings):
        return findings
    return [
        replace(finding, confidence=Confidence.POSSIBLE) if finding.cause is Cause.COLLECTIVE_STALLED else finding
        for finding in findings
    ]


def _rank_of_finding(finding: Finding) -> tuple[int, int, str, bool, tuple[int, ...]]:
    """Of two that are equally sure of one cause, that which names somebody comes first."""
    if finding.cause is Cause.PROGRESSING and finding.confidence is Confidence.CERTAIN:
        return -1, 0, finding.cause.value, False, ()
    is_open = bool(finding.suspects) and not finding.guilty_ranks
    order = _order_of(finding.cause)
    if finding.confidence is Confidence.POSSIBLE:
        order += len(_ORDER)
    return order, -finding.confidence.order, finding.cause.value, is_open, finding.guilty_ranks


def _described(finding: Finding, slices: Slices) -> Finding:
    """`Ranks 8-15 wait` -> `Ranks 8-15 (all ranks of host node1) wait`, where that is exact and there is room."""
    ranks = finding.guilty_ranks or finding.suspects
    who, shared = name_ranks(ranks).capitalize(), slices.describe(ranks)
    if shared is None or not finding.summary.startswith(f"{who} "):
        return finding
    summary = f"{who} ({shared}){finding.summary[len(who) :]}"
    return replace(finding, summary=summary) if len(summary) <= _MAX_SUMMARY else finding


def _with_victims(verdict: Verdict, finding: Finding, waiting: Waiting) -> Verdict:
    """With those that wait for the victims, in other groups than the detector looked at."""
    if not verdict.guilty_ranks:
        return verdict
    return replace(verdict, victims=fold({*finding.victims, *waiting.victims}))


def _contradicted(finding: Finding, others: Iterable[Finding]) -> Finding:
    """A finding of the same order that is sure of other ranks lowers the confidence, and is shown.

    One of a later order is explained by this one, so it contradicts nothing.
    """
    order = _order_of(finding.cause)
    against = [
        other
        for other in others
        if other.guilty_ranks
        and not set(other.guilty_ranks) & set(finding.guilty_ranks)
        and other.confidence is not Confidence.POSSIBLE
        and _order_of(other.cause) == order
    ]
    if not against or not finding.guilty_ranks:
        return finding
    shown = tuple(
        replace(other.evidence[0], says=f"against it: {other.summary}") for other in against if other.evidence
    )
    lower = Confidence.PROBABLE if finding.confidence is Confidence.CERTAIN else Confidence.POSSIBLE
    return replace(finding, confidence=lower, against=(*finding.against, *shown))


def _order_of(cause: Cause) -> int:
    return next((order for order, causes in enumerate(_ORDER) if cause in causes), len(_ORDER))


def _verdict(case: Case, finding: Finding, others: Iterable[Finding], status: Status, slices: Slices) -> Verdict:
    finding = _contradicted(_bounded(case, finding), others)
    if finding.cause is Cause.PROGRESSING and status is not Status.COMPLETE:
        return _inconclusive(case, finding, status)
    hosts = {case.host_of(rank) for rank in finding.guilty_ranks} - {None}
    return Verdict(
        cause=finding.cause,
        summary=finding.summary[:_MAX_SUMMARY],
        guilty_ranks=tuple(sorted(finding.guilty_ranks)),
        guilty_are=slices.describe(finding.guilty_ranks),
        guilty_hosts=tuple(sorted(host for host in hosts if host)),
        victims=fold(finding.victims),
        confidence=finding.confidence,
        blocked_on=finding.blocked_on,
        where=finding.where,
        evidence=finding.evidence,
        against=finding.against,
        next_steps=finding.next_steps,
        fix=finding.fix,
    )


def _bounded(case: Case, finding: Finding) -> Finding:
    """Missing ranks and silent hosts could change an answer that does not rest on direct proof."""
    could_change = bool(set(case.missing) - set(finding.guilty_ranks)) or bool(case.silent_hosts)
    if could_change and finding.confidence is Confidence.CERTAIN and finding.cause is not Cause.RANK_OOM_KILLED:
        return replace(finding, confidence=Confidence.PROBABLE)
    return finding


def _inconclusive(case: Case, lead: Finding | None, status: Status) -> Verdict:
    if status is Status.NO_EVIDENCE:
        summary = "There is no evidence of any rank to judge by."
        steps: tuple[str, ...] = (_no_evidence_step(case),)
    elif case.missing:
        who = name_ranks(case.missing).capitalize()
        of = "" if case.world_size is None else f" of {case.world_size}"
        summary = f"{who}{of} could not be found; a silent rank is the first suspect."
        steps = (f"find the processes of {name_ranks(case.missing)}: add their host, or look for how they ended",)
    elif case.waits.has_moved:
        summary = "The dumps were taken at different moments of a job that moved: they cannot show who waits for whom."
        steps = ("look twice at the job itself: ncclprobe diagnose --live-dump",)
    elif case.waits.unheard and not case.waits.roots:
        who = name_ranks(case.waits.unheard).capitalize()
        summary = f"{who} gave no dump, and the others wait in calls they may not have issued: they are the suspects."
        steps = (f"get the dumps or the stacks of {name_ranks(case.waits.unheard)}",)
    elif lead is not None and lead.suspects:
        summary, steps = lead.summary, lead.next_steps
    elif lead is not None:
        summary, steps = (
            "Ranks were seen at work, but not all of them: this is no proof that nothing hangs.",
            lead.next_steps,
        )
    else:
        summary = "The evidence does not say which rank the others wait for."
        steps = (_NEXT_WITHOUT_DUMPS if not case.timelines else "look again in a minute, with a longer --interval",)
    return Verdict(
        cause=Cause.INCONCLUSIVE,
        summary=summary[:_MAX_SUMMARY],
        guilty_ranks=(),
        guilty_hosts=(),
        victims="",
        confidence=Confidence.POSSIBLE,
        blocked_on=lead.blocked_on if lead else None,
        where=lead.where if lead else (),
        evidence=lead.evidence if lead else (),
        against=lead.against if lead else (),
        next_steps=steps,
        fix="",
    )


def _no_evidence_step(case: Case) -> str:
    if case.evidence.hosts:
        return "run it where the ranks run, as root or as their user; name the hosts with --hosts"
    return "give it flight-recorder dumps, py-spy stacks, or a bundle of ncclprobe collect"


def _status(case: Case, gaps: tuple[Gap, ...]) -> Status:
    evidence = case.evidence
    of_ranks = (case.ranks, case.positions, case.timelines, case.logs.by_fact, case.launches.looks, case.ops.heard)
    if not any(of_ranks) and not (evidence.oom_kills or evidence.xids):
        return Status.NO_EVIDENCE
    is_whole = all(host.outcome is Outcome.COMPLETE for host in case.evidence.hosts) and not case.missing
    return Status.COMPLETE if is_whole else Status.PARTIAL


def _coverage(case: Case) -> Coverage:
    hosts = case.evidence.hosts
    heard = set(case.expected) - set(case.missing)
    return Coverage(
        hosts_asked=len(hosts),
        hosts_answered=len(hosts) - len(case.silent_hosts),
        world_size=case.world_size,
        ranks_found=len(heard),
        ranks_missing=fold(case.missing),
        kinds=dict(sorted(case.evidence.kinds.items())),
    )
