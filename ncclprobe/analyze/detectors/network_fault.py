"""A port, a link or a path between two hosts: adapters' own events, links that went down, transfers that failed.

In: NCCL's warnings, kernel faults, addresses. Out: a finding. Errors that all have one host at an end name that host;
errors between two endpoints name both, for nothing tells which end it is.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.devices import host_of_file, host_of_line
from ncclprobe.analyze.endpoints import Transfer, failed_transfers
from ncclprobe.analyze.logs import Said, cite_said
from ncclprobe.analyze.onset import Nearness, find_onset, nearness
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.kernel import KernelFault
from ncclprobe.model.log import PortError
from ncclprobe.model.nic import PortLook
from ncclprobe.model.records import Sourced
from ncclprobe.model.report import Cause, Confidence, Finding

Fault = Sourced[KernelFault]
Port = Sourced[PortLook]
_FIX = "Take the port or host out of service and check cable, transceiver and switch port (ibstat, ethtool, mlxlink)."
_MANY = 4
_PAIR = 2


def detect(case: Case) -> Iterator[Finding]:
    """Ports that report errors themselves; else connections that break although both ends live; else a link's flap."""
    ports = _by_host(case)
    if len(ports) == 1:
        yield _of_ports(case, *next(iter(ports.items())))
        return
    if ports:
        yield _of_many_ports(case, ports)
        return
    transfers = failed_transfers(case)
    if transfers:
        yield _of_path(case, transfers)
        return
    down = list(_down_ports(case))
    yield from down or _of_links(case)


def _by_host(case: Case) -> dict[str, list[Said]]:
    """Hosts whose adapters reported an error."""
    found: dict[str, list[Said]] = defaultdict(list)
    for said in case.logs.of(PortError):
        if said.record.host:
            found[said.record.host].append(said)
    return found


def _of_ports(case: Case, host: str, said: list[Said]) -> Finding:
    devices = {s.record.what.device for s in said if isinstance(s.record.what, PortError)}
    own = {s.record.rank for s in said if s.record.rank is not None}
    # One bad port is that of the rank that uses it; several at once are the host's.
    ranks = case.ranks_of_host(host) if len(devices) > 1 or not own else tuple(sorted(own))
    summary = f"{len(devices)} network port(s) of {host}, the host of {name_ranks(ranks)}, reported errors."
    citations = (cite_said(s, f"a port of {host} reports an error") for s in said[:3])
    return _of_host(case, host, ranks, summary, citations, Confidence.PROBABLE)


def _of_many_ports(case: Case, ports: dict[str, list[Said]]) -> Finding:
    """Of two hosts either end, or what is between them; of more than two a switch is likelier than any of them."""
    found = [_of_ports(case, host, said) for host, said in sorted(ports.items())]
    ranks = tuple(sorted({rank for finding in found for rank in finding.guilty_ranks}))
    is_pair = len(ports) == _PAIR
    summary = f"Network ports of {', '.join(sorted(ports))}, the hosts of {name_ranks(ranks)}, reported errors."
    citations = [finding.evidence[0] for finding in found[:3]]
    finding = _of_host(case, min(ports), ranks if is_pair else (), summary, citations, Confidence.PROBABLE)
    return replace(finding, suspects=() if is_pair else ranks)


def _of_host(
    case: Case,
    host: str,
    ranks: tuple[int, ...],
    summary: str,
    citations: Iterable[Citation],
    confidence: Confidence,
) -> Finding:
    return Finding(
        cause=Cause.NETWORK_FAULT,
        summary=summary[:200],
        guilty_ranks=ranks,
        confidence=confidence if ranks else Confidence.POSSIBLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        evidence=tuple(citations),
        next_steps=(f"on {host}: ibstat; dmesg | grep -i mlx5; the switch's log for its ports",),
        fix=_FIX,
    )


def _of_path(case: Case, transfers: list[Transfer]) -> Finding:
    host = _common_host(transfers)
    peers = {transfer.peer for transfer in transfers} | {transfer.rank for transfer in transfers}
    at_host = {rank for rank in peers if rank is not None and case.host_of(rank) == host}
    if host is not None:
        # One rail that everybody loses is one rank's; several are the host's.
        ranks = tuple(at_host) if len(at_host) == 1 else case.ranks_of_host(host)
        summary = f"All failed transfers have {host}, the host of {name_ranks(ranks)}, at one end."
        return _of_host(case, host, ranks, summary, _cite_transfers(transfers), Confidence.PROBABLE)
    ends: dict[int, set[int]] = defaultdict(set)
    for transfer in transfers:
        if transfer.peer is not None:
            ends[transfer.rank].add(transfer.peer)
            ends[transfer.peer].add(transfer.rank)
    return _between(case, ends, transfers)


def _common_host(transfers: list[Transfer]) -> str | None:
    """The host that all transfers have at one end, the other ends being of at least two others."""
    pairs = {frozenset((t.host, t.peer_host)) for t in transfers if t.host and t.peer_host and t.host != t.peer_host}
    common = set.intersection(*map(set, pairs)) if len(pairs) > 1 else set()
    return common.pop() if len(common) == 1 else None


def _between(case: Case, ends: dict[int, set[int]], transfers: list[Transfer]) -> Finding:
    """A rank that all errors have at one end is where they come from."""
    common = [rank for rank, peers in ends.items() if len(peers) > 1 and len(peers) == len(ends) - 1]
    ranks = tuple(sorted(common)) if len(common) == 1 else tuple(sorted(ends))
    if not any(transfer.has_connected for transfer in transfers):
        ranks = ()
    complaining = tuple(sorted({transfer.rank for transfer in transfers}))
    who = name_ranks(ends) if ends else f"{name_ranks(complaining)} and others"
    return Finding(
        cause=Cause.NETWORK_FAULT,
        summary=f"Transfers between {who} failed on the network; nothing tells which end is at fault."[:200],
        guilty_ranks=ranks,
        suspects=() if ranks else complaining,
        confidence=Confidence.POSSIBLE if len(ends) > _MANY or not ranks else Confidence.PROBABLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        evidence=tuple(_cite_transfers(transfers)),
        next_steps=("run ib_write_bw (or iperf3) between these two hosts, on that adapter, both ways",),
        fix=_FIX,
    )


def _cite_transfers(transfers: list[Transfer]) -> Iterator[Citation]:
    for transfer in transfers[:3]:
        yield cite_said(transfer.said, f"rank {transfer.rank} lost a transfer")


def _of_links(case: Case) -> Iterator[Finding]:
    """A link of one host that went down as the hang began, and of no other host's: flaps at other times are no news."""
    onset = find_onset(case.logs)
    by_host: dict[str, list[Fault]] = defaultdict(list)
    for fault in case.evidence.kernel_faults:
        record, host = fault.record, host_of_line(case, fault.record.host, fault.artifact)
        is_such = record.is_fatal and record.kind in ("link-down", "port")
        if is_such and host and nearness(record.when_ns, onset) is Nearness.CLOSE:
            by_host[host].append(fault)
    if len(by_host) != 1:
        return
    host, faults = next(iter(by_host.items()))
    ranks = case.ranks_of_host(host)
    is_part = bool(ranks) and set(ranks) < set(case.expected)
    devices = ", ".join(sorted({fault.record.device for fault in faults}))
    summary = f"A link of {host}, the host of {name_ranks(ranks)}, went down as the hang began ({devices})."
    citations = (cite(f.artifact, f"line {f.record.line}", f.record.quote, f"a link of {host}") for f in faults[:3])
    yield _of_host(case, host, ranks if is_part else (), summary, citations, Confidence.PROBABLE)


def _down_ports(case: Case) -> Iterator[Finding]:
    """A port that is down on one host and up on all others: what is down everywhere is not in use."""
    states: dict[str, dict[str, Port]] = defaultdict(dict)
    for look in case.evidence.ports:
        host = host_of_file(case, look.artifact)
        if host and look.record.port is not None:  # an adapter for RDMA; other interfaces may be down by rights
            states[look.record.device][host] = look
    for device, of_host in sorted(states.items()):
        down = [host for host, look in of_host.items() if look.record.state.upper() == "DOWN"]
        up = [host for host, look in of_host.items() if look.record.state.upper() in ("ACTIVE", "UP")]
        if len(down) == 1 and len(up) == len(of_host) - 1 > 0:
            port, host = of_host[down[0]], down[0]
            ranks = _of_rail(case, host, device, states)
            summary = f"Port {device} of {host}, that of {name_ranks(ranks)}, is down; on {', '.join(up[:3])} it is up."
            says = f"{device} of {host} is down"
            citation = cite(port.artifact, device, f"{port.record.state} {port.record.physical_state}".strip(), says)
            yield _of_host(case, host, ranks, summary, (citation,), Confidence.PROBABLE)
            return


def _of_rail(case: Case, host: str, device: str, states: dict[str, dict[str, Port]]) -> tuple[int, ...]:
    """Where a host has as many such adapters as ranks each has its own, in the order of their numbers."""
    ranks = case.ranks_of_host(host)
    family = device.rstrip("0123456789")
    alike = [name for name, of_host in states.items() if host in of_host and name.rstrip("0123456789") == family]
    in_order = sorted(alike, key=lambda name: (len(name), name))
    return (ranks[in_order.index(device)],) if len(in_order) == len(ranks) else ranks


DETECTOR = Detector(causes=(Cause.NETWORK_FAULT,), detect=detect)
