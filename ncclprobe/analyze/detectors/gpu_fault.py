"""A GPU failed: the driver says so in the kernel log, or NVML of the device itself.

In: Xids, GPU looks, which rank uses which GPU. Out: a finding for the first fatal error; what follows it is an echo.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.devices import host_of_file, rank_of_gpu
from ncclprobe.model.evidence import Citation
from ncclprobe.model.kernel import Xid
from ncclprobe.model.log import WorkTimeout
from ncclprobe.model.records import Sourced
from ncclprobe.model.report import Cause, Confidence, Finding

_FIX = "Take the GPU out of service, follow the action, and start again without that host."


def detect(case: Case) -> Iterator[Finding]:
    """The first fatal Xid of a GPU that a rank of the job uses; else a device that NVML has lost."""
    fatal = sorted((x for x in case.evidence.xids if x.record.is_fatal and not x.record.is_echo), key=_time_of)
    for sourced in fatal:
        rank = _rank(case, sourced)
        if rank is not None:
            yield _by_xid(case, sourced, rank)
            return
    yield from _lost(case)


def _time_of(sourced: Sourced[Xid]) -> tuple[int, str, int]:
    return sourced.record.when_ns or 0, sourced.artifact.path, sourced.record.line


def _rank(case: Case, sourced: Sourced[Xid]) -> int | None:
    return rank_of_gpu(case, host_of_file(case, sourced.artifact), sourced.record.bus_id, sourced.record.pid)


def _by_xid(case: Case, sourced: Sourced[Xid], rank: int) -> Finding:
    xid = sourced.record
    return Finding(
        cause=Cause.GPU_FAULT,
        summary=f"Xid {xid.code} on the GPU of rank {rank} ({xid.bus_id}): {xid.meaning}."[:200],
        guilty_ranks=(rank,),
        confidence=Confidence.CERTAIN if _others_waited(case, rank) else Confidence.PROBABLE,
        victims=tuple(other for other in case.expected if other != rank),
        evidence=(
            cite(sourced.artifact, f"line {xid.line}", xid.quote, f"the driver reports Xid {xid.code}, {xid.meaning}"),
            *_echoes(case, sourced),
        ),
        next_steps=(f"on its host: {xid.action}", "nvidia-smi -q for ECC, remapped rows and the recovery action"),
        fix=_FIX,
    )


def _others_waited(case: Case, rank: int) -> bool:
    """Two kinds of evidence: the driver's line, and peers that waited while this rank did not."""
    waited = {said.record.rank for said in case.logs.of(WorkTimeout)}
    return bool(waited - {rank}) and rank not in waited


def _echoes(case: Case, first: Sourced[Xid]) -> Iterator[Citation]:
    for sourced in case.evidence.xids:
        xid = sourced.record
        if sourced is not first and xid.is_echo:
            yield cite(sourced.artifact, f"line {xid.line}", xid.quote, f"Xid {xid.code} follows from another's end")
            return


def _lost(case: Case) -> Iterator[Finding]:
    for sourced in case.evidence.gpus:
        look = sourced.record
        if not look.problem:
            continue
        host = look.host or sourced.artifact.host
        owners = {case.owner_of(host, pid) for pid in look.pids} - {None}
        rank = owners.pop() if len(owners) == 1 else rank_of_gpu(case, host, look.bus_id or "", None)
        if rank is None:
            continue
        yield Finding(
            cause=Cause.GPU_FAULT,
            summary=f"GPU {look.index} of {host or 'its host'}, used by rank {rank}, cannot be read: {look.problem}."[
                :200
            ],
            guilty_ranks=(rank,),
            confidence=Confidence.PROBABLE,
            victims=tuple(other for other in case.expected if other != rank),
            evidence=(cite(sourced.artifact, f"GPU {look.index}", look.problem, "the driver has lost the device"),),
            next_steps=("read dmesg on its host for Xid lines",),
            fix=_FIX,
        )
        return


DETECTOR = Detector(causes=(Cause.GPU_FAULT,), detect=detect)
