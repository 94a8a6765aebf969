"""A GPU failed: the driver says so in the kernel log, or NVML of the device itself.

In: Xids, GPU looks, which rank uses which GPU. Out: a finding for the first fatal error; what follows it is an echo.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.devices import devices_by_host, host_of_line, rank_of_device, rank_of_gpu
from ncclprobe.analyze.gpus import GpuState
from ncclprobe.analyze.onset import Nearness, find_onset, nearness
from ncclprobe.model.evidence import Citation
from ncclprobe.model.kernel import Xid
from ncclprobe.model.log import WorkTimeout
from ncclprobe.model.records import Sourced
from ncclprobe.model.report import Cause, Confidence, Finding

_FIX = "Take the GPU out of service, follow the action, and start again without that host."


def detect(case: Case) -> Iterator[Finding]:
    """The first fatal Xid of a GPU that a rank of the job uses, near the hang; else a device that is lost."""
    onset = find_onset(case.logs)
    fatal = sorted((x for x in case.evidence.xids if x.record.is_fatal and not x.record.is_echo), key=_time_of)
    for sourced in fatal:
        if nearness(sourced.record.when_ns, onset).is_far:
            continue  # the job outlived it, or it came after
        rank = _rank(case, sourced)
        if rank is not None:
            yield _by_xid(case, sourced, rank)
            return
    yield from _lost(case)


def _time_of(sourced: Sourced[Xid]) -> tuple[int, str, int]:
    return sourced.record.when_ns or 0, sourced.artifact.path, sourced.record.line


def _rank(case: Case, sourced: Sourced[Xid]) -> int | None:
    return rank_of_gpu(
        case, host_of_line(case, sourced.record.host, sourced.artifact), sourced.record.bus_id, sourced.record.pid
    )


def _by_xid(case: Case, sourced: Sourced[Xid], rank: int) -> Finding:
    xid = sourced.record
    return Finding(
        cause=Cause.GPU_FAULT,
        summary=f"Xid {xid.code} on the GPU of rank {rank} ({xid.bus_id}): {xid.meaning}."[:200],
        guilty_ranks=(rank,),
        confidence=_confidence(case, sourced, rank),
        victims=tuple(other for other in case.expected if other != rank),
        evidence=(
            cite(sourced.artifact, f"line {xid.line}", xid.quote, f"the driver reports Xid {xid.code}, {xid.meaning}"),
            *_echoes(case, sourced),
        ),
        next_steps=(f"on its host: {xid.action}", "nvidia-smi -q for ECC, remapped rows and the recovery action"),
        fix=_FIX,
    )


def _confidence(case: Case, sourced: Sourced[Xid], rank: int) -> Confidence:
    """Of a line with another process's pid only its time shows that it is of this job, and not of the one before.

    So it does of a rank that issued the call of the others, and waited in it like them.
    """
    xid = sourced.record
    near = nearness(xid.when_ns, find_onset(case.logs))
    is_foreign = (
        xid.pid is not None
        and case.owner_of(host_of_line(case, sourced.record.host, sourced.artifact), xid.pid) is None
    )
    has_waited_too = any(said.record.rank == rank for said in case.logs.of(WorkTimeout))
    if (near is Nearness.UNKNOWN and (is_foreign or has_waited_too)) or near is Nearness.SHIFTED:
        return Confidence.POSSIBLE
    return Confidence.CERTAIN if _others_waited(case, rank) else Confidence.PROBABLE


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
    """By NVML, else by a line of the kernel that is no Xid."""
    for device in devices_by_host(case):
        rank = rank_of_device(case, device) if device.state is GpuState.LOST else None
        if rank is not None:
            look = device.looks[-1]
            says = f"GPU {device.key} of {device.host or 'its host'} cannot be read: {device.says}"
            yield _of_device(case, rank, says, cite(look.artifact, f"GPU {device.key}", device.says, "it is lost"))
            return
    onset = find_onset(case.logs)
    for fault in case.evidence.kernel_faults:
        record = fault.record
        if record.kind != "gpu-lost" or nearness(record.when_ns, onset).is_far:
            continue
        rank = rank_of_gpu(case, host_of_line(case, record.host, fault.artifact), record.device, record.pid)
        if rank is not None:
            says = f"the driver has lost GPU {record.device}"
            yield _of_device(case, rank, says, cite(fault.artifact, f"line {record.line}", record.quote, says))
            return


def _of_device(case: Case, rank: int, says: str, citation: Citation) -> Finding:
    return Finding(
        cause=Cause.GPU_FAULT,
        summary=f"The GPU of rank {rank} failed: {says}."[:200],
        guilty_ranks=(rank,),
        confidence=Confidence.PROBABLE,
        victims=tuple(other for other in case.expected if other != rank),
        evidence=(citation,),
        next_steps=("read dmesg on its host for Xid lines",),
        fix=_FIX,
    )


DETECTOR = Detector(causes=(Cause.GPU_FAULT,), detect=detect)
