"""Every member issued the same call, and it ends nowhere.

In: the wait-for graph. Out: a finding that names nobody and says which checks decide.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.heads import CallKey
from ncclprobe.model.report import BlockedOn, Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """Only with a dump of every member, no divergence and no rank that is waited for."""
    if case.mismatches or case.waits.roots or case.waits.unheard:
        return
    for key in case.waits.stalled[:1]:
        yield _finding(case, key)


def _finding(case: Case, key: CallKey) -> Finding:
    head = next(head for head in case.waits.heads.values() if key in head.keys)
    group, op, seq = head.call.group.label, head.call.signature.op, head.call.seq
    return Finding(
        cause=Cause.COLLECTIVE_STALLED,
        summary=f"All members of group {group} issued {op} as call {seq}; it ends nowhere."[:200],
        guilty_ranks=(),
        # A healthy job looks like this at any moment: without a time it may be no more than that.
        confidence=Confidence.PROBABLE if case.is_frozen else Confidence.POSSIBLE,
        victims=tuple(case.waits.heads),
        blocked_on=BlockedOn(group=group, seq=seq, op=op),
        evidence=(
            cite(head.artifact, f"entry {head.call.entry}", str(head.call.signature), "all members wait in this call"),
        ),
        next_steps=(
            "look for a GPU or link fault: dmesg for Xid lines, ibstat or ethtool for ports, nvidia-smi for lost GPUs",
            "run the same ranks with nccl-tests all_reduce_perf to see whether the network alone hangs",
        ),
        fix="Find the faulty link or device: the ranks' code is in step.",
    )


DETECTOR = Detector(causes=(Cause.COLLECTIVE_STALLED,), detect=detect)
