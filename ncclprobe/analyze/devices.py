"""Which rank uses which GPU.

In: communicator lines, processes and GPU looks of a `Case`. Out: the rank of a bus id on a host.
"""

from dataclasses import replace

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.gpus import GpuDevice, find_devices
from ncclprobe.analyze.logs import host_in_name
from ncclprobe.model.evidence import Artifact
from ncclprobe.model.log import CommEvent
from ncclprobe.model.records import Sourced


def host_of_file(case: Case, artifact: Artifact) -> str | None:
    """The host a file was collected from, or whose name is in its own."""
    hosts = {*case.logs.host_of.values(), *(rank.host for rank in case.ranks.values())}
    return artifact.host or host_in_name(artifact.path, hosts)


def host_of_line(case: Case, host: str | None, artifact: Artifact) -> str | None:
    """The host that a line names, in the short form that NCCL prints, where that one is known; else the file's."""
    if host is None:
        return host_of_file(case, artifact)
    short = host.partition(".")[0]
    known = {*case.logs.host_of.values(), *(rank.host for rank in case.ranks.values())}
    return host if host in known or short not in known else short


def owner_of_process(case: Case, host: str | None, pid: int | None) -> int | None:
    """The rank of a process that a file tells of; of a file without a host only where all ranks' processes are known.

    Every host may have a process of that pid, also one that gave nothing else.
    """
    owner = case.owner_of(host, pid)
    known = {*case.ranks, *case.logs.rank_of.values(), *case.launches.process_of}
    is_told = host is not None or pid in case.outer_pids
    return owner if is_told or known.issuperset(case.expected) else None


def devices_by_host(case: Case) -> tuple[GpuDevice, ...]:
    """All devices; a file that says itself of no host is of the one in its name, or of the only one there is."""
    hosts = {*case.logs.host_of.values(), *(rank.host for rank in case.ranks.values())}
    only = next(iter(hosts)) if len(hosts) == 1 else None
    looks = (
        Sourced(replace(look.artifact, host=host_of_file(case, look.artifact) or only or ""), look.record)
        for look in case.evidence.gpus
    )
    return find_devices(looks)


def rank_of_device(case: Case, device: GpuDevice) -> int | None:
    """By the processes that NVML shows on it, else by its bus id."""
    owners = {case.owner_of(device.host or None, pid) for pid in device.pids} - {None}
    if len(owners) == 1:
        return owners.pop()
    return rank_of_gpu(case, device.host or None, device.key) if ":" in device.key else None


def rank_of_gpu(case: Case, host: str | None, bus_id: str, pid: int | None = None) -> int | None:
    """By the communicator's own lines; else by the process; None when two ranks fit, or none does."""
    devices = [(said, what) for said, what in case.logs.facts(CommEvent) if what.bus_id is not None]
    if host is None and not set(case.expected) <= {said.record.rank for said, _ in devices}:
        # Every host has a GPU at that place, and may have a process of that pid: only a list of all tells.
        return case.launches.rank_with(pid)
    by_bus = {
        said.record.rank
        for said, what in devices
        if _is_same_bus(what.bus_id, bus_id) and host in (None, said.record.host) and said.record.rank is not None
    }
    if len(by_bus) == 1:
        return by_bus.pop()
    owner = case.owner_of(host, pid)
    return owner if owner is not None else _by_look(case, host, bus_id)


def _is_same_bus(one: str | None, other: str) -> bool:
    """The function number and leading zeros of the domain are left out by some: compare bus and device."""
    return one is not None and _short(one) == _short(other)


def _short(bus_id: str) -> str:
    return ":".join(bus_id.lower().partition(".")[0].split(":")[-2:])


def _by_look(case: Case, host: str | None, bus_id: str) -> int | None:
    """A process that NVML showed on that device."""
    for sourced in case.evidence.gpus:
        if sourced.record.bus_id is None or not _is_same_bus(sourced.record.bus_id, bus_id):
            continue
        where = sourced.record.host or sourced.artifact.host
        owners = {case.owner_of(where, pid) for pid in sourced.record.pids} - {None}
        if len(owners) == 1 and host in (None, where):
            return owners.pop()
    return None
