"""Ranks the others wait for, told from the recorders alone: they are in no collective, or their GPU has stopped in one.

In: roots of the wait-for graph whose ranks were not looked into. Out: a finding per kind of root.
"""

from collections.abc import Iterator
from dataclasses import replace

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.waits import Reason, Root
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import Cause, Confidence, Finding

_STALLED_FIX = "Look at that GPU first: dmesg for Xid lines, nvidia-smi -q, cuda-gdb or py-spy --native on the rank."
_ABSENT_FIX = "See what that rank does instead: its stack and its log say why it did not come."

_SNAPSHOT_LAG = 3


def detect(case: Case) -> Iterator[Finding]:
    """Where stacks were read they tell more, and another detector does."""
    for root in case.waits.roots if not case.mismatches else ():
        if root.reason is Reason.CYCLE or any(rank in case.positions for rank in root.ranks):
            continue
        if root.reason is Reason.ABSENT:
            finding = _absent(case, root)
            # While recorders go on, a rank that has not come may be on its way.
            is_late = case.looks.is_frozen is False
            is_open = is_late or (_may_send_unrecorded(case, root) and 2 * len(root.ranks) >= len(case.expected))
            yield _only_suspected(finding) if is_open else finding
            continue
        finding = _stalled(case, root)
        # A call or two of lag is what a healthy job shows at any moment: only a second look tells it from a stop.
        # Nor can most of a job lag behind the few: a collective ends for all who take part.
        is_minority = 2 * len(root.ranks) <= len(case.expected)
        is_named = (root.lag > _SNAPSHOT_LAG or case.is_frozen) and is_minority
        yield finding if is_named else _only_suspected(finding)


def _may_send_unrecorded(case: Case, root: Root) -> bool:
    """No recorder holds the sends and recvs of gloo: a rank that seems to wait in nothing may wait in one of them."""
    backends = {name for s in case.evidence.recordings if s.artifact.rank in root.ranks for name in s.record.backends}
    return backends == {"gloo"}


def _only_suspected(finding: Finding) -> Finding:
    return replace(finding, guilty_ranks=(), suspects=finding.guilty_ranks, confidence=Confidence.POSSIBLE)


def _absent(case: Case, root: Root) -> Finding:
    head = case.waits.waiter(root)
    is_alone = "waits" if len(root.ranks) == 1 else "wait"
    return Finding(
        cause=Cause.STUCK_IN_PYTHON,
        summary=(
            f"{name_ranks(root.ranks).capitalize()} {is_alone} in no collective and did not issue "
            f"{head.call.signature.op}, which others wait in."
        )[:200],
        guilty_ranks=root.ranks,
        confidence=_confidence(case, root),
        victims=case.waits.victims(root),
        blocked_on=case.waits.blocked_on(root),
        evidence=tuple(_evidence(case, root, "waits in this call, which did not come from there")),
        next_steps=(f"look at the stacks of {name_ranks(root.ranks)}: py-spy dump --pid PID on their hosts",),
        fix=_ABSENT_FIX,
    )


def _stalled(case: Case, root: Root) -> Finding:
    verb = "has" if len(root.ranks) == 1 else "have"
    return Finding(
        cause=Cause.STUCK_IN_CUDA,
        summary=(
            f"{name_ranks(root.ranks).capitalize()} {verb} not ended a collective that peers in the same group have "
            "finished: the GPU stopped."
        )[:200],
        guilty_ranks=root.ranks,
        confidence=_confidence(case, root),
        victims=case.waits.victims(root),
        blocked_on=case.waits.blocked_on(root),
        evidence=tuple(_evidence(case, root, "waits in this call")),
        next_steps=(f"look at the GPUs of {name_ranks(root.ranks)}: dmesg for Xid lines, nvidia-smi -q",),
        fix=_STALLED_FIX,
    )


def _confidence(case: Case, root: Root) -> Confidence:
    """Dumps of all ranks leave no other root; a rank that was not heard could be one.

    That a GPU lags says more when nothing moved any more: dumps of a running job lag by the time between them.
    """
    is_whole = not case.waits.unheard and not case.missing
    is_absent = root.reason is Reason.ABSENT and not _may_send_unrecorded(case, root)
    is_sure = is_whole and (is_absent or case.is_frozen)
    return Confidence.PROBABLE if is_sure else Confidence.POSSIBLE


def _evidence(case: Case, root: Root, waits: str) -> Iterator[Citation]:
    head = case.waits.waiter(root)
    yield cite(head.artifact, f"entry {head.call.entry}", str(head.call.signature), f"rank {head.rank} {waits}")
    for sourced in case.evidence.recordings:
        rank = sourced.artifact.rank
        if rank in root.ranks:
            own = case.waits.heads.get(rank)
            quote = f"waits in {own.call.signature}, call {own.call.seq}" if own else "no outstanding call"
            yield cite(sourced.artifact, "entries", quote, f"what rank {rank} itself has outstanding")


DETECTOR = Detector(causes=(Cause.STUCK_IN_PYTHON, Cause.STUCK_IN_CUDA), detect=detect)
