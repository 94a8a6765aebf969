"""The kernel tells of a rank's own process: it crashed, or it is blocked inside the kernel.

In: kernel faults with a pid that is a rank's, or its child's. Out: a finding. A fault that the job outlived, or that
came after the watchdogs gave up, explains nothing; a rank that printed a timeout of its own lived until then.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.devices import host_of_line, owner_of_process
from ncclprobe.analyze.onset import find_onset, nearness
from ncclprobe.analyze.whereabouts import find_whereabouts
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.kernel import KernelFault
from ncclprobe.model.log import WorkTimeout
from ncclprobe.model.records import Sourced
from ncclprobe.model.report import Cause, Confidence, Finding

Fault = Sourced[KernelFault]
_CRASH_FIX = "Read the core dump or the native stack of that process; its library and address are in the line."
_BLOCKED_FIX = "See to what it waits for: the file server, the disk, the driver; a blocked process cannot be killed."


def detect(case: Case) -> Iterator[Finding]:
    """At most one of a crash, the first, and one of all ranks that are blocked."""
    onset = find_onset(case.logs)
    of_rank = [
        (fault, rank)
        for fault in case.evidence.kernel_faults
        if (rank := _owner(case, fault)) is not None and not nearness(fault.record.when_ns, onset).is_far
    ]
    timed_out = {said.record.rank for said in case.logs.of(WorkTimeout)}
    crashes = [found for found in of_rank if found[0].record.kind == "segfault" and found[1] not in timed_out]
    crashes.sort(key=lambda found: _place(found[0]))
    if crashes:
        yield _crash(case, *crashes[0])
    blocked = {r: f for f, r in reversed(of_rank) if f.record.kind in ("hung-task", "lockup") and r not in timed_out}
    if blocked and not crashes:
        yield _blocked(case, dict(sorted(blocked.items())))


def _owner(case: Case, fault: Fault) -> int | None:
    host = host_of_line(case, fault.record.host, fault.artifact)
    return owner_of_process(case, host, fault.record.pid)


def _place(fault: Fault) -> tuple[int, str, int]:
    return fault.record.when_ns or 0, fault.artifact.path, fault.record.line


def _crash(case: Case, fault: Fault, rank: int) -> Finding:
    record = fault.record
    where = f" in {record.device}" if record.device else ""
    timed_out = {said.record.rank for said in case.logs.of(WorkTimeout)}
    others_waited = bool(timed_out - {rank}) and rank not in timed_out
    return Finding(
        cause=Cause.RANK_CRASHED,
        summary=f"The kernel reports that process {record.pid} of rank {rank} crashed{where}."[:200],
        guilty_ranks=(rank,),
        confidence=Confidence.CERTAIN if others_waited else Confidence.PROBABLE,
        victims=tuple(other for other in case.expected if other != rank),
        evidence=(_cite(fault, f"process {record.pid} of rank {rank} crashed"), *_cite_waiting(case, {rank})),
        next_steps=(f"read the log of rank {rank} up to that moment, and its core dump (coredumpctl)",),
        fix=_CRASH_FIX,
    )


def _blocked(case: Case, blocked: dict[int, Fault]) -> Finding:
    """Most ranks blocked at once have the same storage or driver: then nobody is the odd one."""
    ranks = tuple(blocked)
    where = find_whereabouts(case, ranks)
    is_few = 2 * len(ranks) < max(len(case.expected), 1)
    first = blocked[ranks[0]]
    doing = where.doing if where.shown_by else "for what is not known"
    # What waits for others is no reason to be blocked in the kernel.
    cause = Cause.STUCK_IN_PYTHON if where.cause is Cause.COLLECTIVE_SKIPPED else where.cause
    return Finding(
        cause=cause,
        summary=f"{name_ranks(ranks).capitalize()} blocked inside the kernel (state D): {doing}."[:200],
        guilty_ranks=ranks if is_few else (),
        suspects=() if is_few else ranks,
        confidence=Confidence.PROBABLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        where=where.places,
        evidence=(
            *(_cite(fault, f"process {fault.record.pid} of rank {rank} is blocked") for rank, fault in _few(blocked)),
            *_cite_storage(case, first),
            *where.citations,
            *_cite_waiting(case, set(ranks)),
        ),
        next_steps=(f"cat /proc/{first.record.pid}/stack as root on its host; df, mount and dmesg for the storage",),
        fix=_BLOCKED_FIX,
    )


def _few(blocked: dict[int, Fault]) -> list[tuple[int, Fault]]:
    return list(blocked.items())[:2]


def _cite(fault: Fault, says: str) -> Citation:
    return cite(fault.artifact, f"line {fault.record.line}", fault.record.quote, says)


def _cite_storage(case: Case, near: Fault) -> Iterator[Citation]:
    """A file server or a disk that does not answer, in the same log."""
    for fault in case.evidence.kernel_faults:
        record = fault.record
        if fault.artifact.path == near.artifact.path and record.kind == "storage" and record.is_fatal:
            yield _cite(fault, f"{record.device or 'storage'} does not answer")
            return


def _cite_waiting(case: Case, ranks: set[int]) -> Iterator[Citation]:
    waits = [said for said in case.logs.of(WorkTimeout) if said.record.rank not in ranks]
    for said in waits[:1]:
        who = name_ranks({other.record.rank for other in waits if other.record.rank is not None})
        yield cite(said.artifact, f"line {said.record.line}", said.record.quote, f"{who} waited until the timeout")


DETECTOR = Detector(causes=(Cause.RANK_CRASHED, Cause.STUCK_IN_PYTHON), detect=detect)
