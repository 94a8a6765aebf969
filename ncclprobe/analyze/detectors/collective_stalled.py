"""Every member issued the same call, and it ends nowhere.

In: the wait-for graph. Out: a finding that names nobody and says which checks decide.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.timeline import GroupTimeline
from ncclprobe.model.report import BlockedOn, Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """Only with a dump of every member, no divergence and no rank that is waited for."""
    if case.mismatches or case.waits.roots:
        return
    for index, seq in case.waits.stalled:
        timeline = case.timelines[index]
        if not timeline.silent:
            yield _finding(timeline, seq)


def _finding(timeline: GroupTimeline, seq: int) -> Finding:
    first = timeline.tracks[min(timeline.tracks)]
    call = first.call(seq)
    op = call.signature.op if call else "the call"
    return Finding(
        cause=Cause.COLLECTIVE_STALLED,
        summary=f"All members of group {timeline.group.label} issued {op} as call {seq}; it ends nowhere."[:200],
        guilty_ranks=(),
        confidence=Confidence.PROBABLE,
        victims=timeline.members,
        blocked_on=BlockedOn(group=timeline.group.label, seq=seq, op=op),
        evidence=(cite(first.artifact, f"call {seq}", op, "the same call is the last one on every member"),),
        next_steps=(
            "look for a GPU or link fault: dmesg for Xid lines, ibstat or ethtool for ports, nvidia-smi for lost GPUs",
            "run the same ranks with nccl-tests all_reduce_perf to see whether the network alone hangs",
        ),
        fix="Find the faulty link or device: the ranks' code is in step.",
    )


DETECTOR = Detector(causes=(Cause.COLLECTIVE_STALLED,), detect=detect)
