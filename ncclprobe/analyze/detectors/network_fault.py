"""A port, a link or a path between two hosts: adapters' own events and completion errors.

In: NCCL's warnings, ports, kernel lines. Out: a finding. Errors that all point at one host name that host; errors
between two endpoints name both, for nothing tells which end it is.
"""

from collections import defaultdict
from collections.abc import Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.logs import Said, cite_said
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import NetworkError, PortError
from ncclprobe.model.report import Cause, Confidence, Finding

_FIX = "Take the port or host out of service and check cable, transceiver and switch port (ibstat, ethtool, mlxlink)."


def detect(case: Case) -> Iterator[Finding]:
    """Ports that report errors themselves; else connections that break although both ends live (no flush, no end)."""
    ports = _by_host(case)
    if len(ports) == 1:
        host, said = next(iter(ports.items()))
        yield _of_host(case, host, said)
        return
    errors = [s for s, what in case.logs.facts(NetworkError) if not what.is_echo and what.status is not None]
    if errors:
        yield from _of_path(case, errors)


def _by_host(case: Case) -> dict[str, list[Said]]:
    """Hosts whose adapters reported an error."""
    found: dict[str, list[Said]] = defaultdict(list)
    for said in case.logs.of(PortError):
        if said.record.host:
            found[said.record.host].append(said)
    return found


def _of_host(case: Case, host: str, said: list[Said]) -> Finding:
    devices = {s.record.what.device for s in said if isinstance(s.record.what, PortError)}
    own = {s.record.rank for s in said if s.record.rank is not None}
    # One bad port is that of the rank that uses it; several at once are the host's.
    ranks = case.ranks_of_host(host) if len(devices) > 1 or not own else tuple(sorted(own))
    return Finding(
        cause=Cause.NETWORK_FAULT,
        summary=f"{len(devices)} network port(s) of {host}, the host of {name_ranks(ranks)}, reported errors."[:200],
        guilty_ranks=ranks,
        confidence=Confidence.PROBABLE if ranks else Confidence.POSSIBLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        evidence=tuple(cite_said(s, f"a port of {host} reports an error") for s in said[:3]),
        next_steps=(f"on {host}: ibstat; dmesg | grep -i mlx5; the switch's log for its ports",),
        fix=_FIX,
    )


def _of_path(case: Case, errors: list[Said]) -> Iterator[Finding]:
    ends: dict[int, set[int]] = defaultdict(set)
    for said in errors:
        rank, peer = said.record.rank, _peer(case, said)
        if rank is not None and peer is not None:
            ends[rank].add(peer)
            ends[peer].add(rank)
    if not ends:
        return
    # A rank that all errors have at one end is where they come from.
    common = [rank for rank, peers in ends.items() if len(peers) > 1 and len(peers) == len(ends) - 1]
    ranks = tuple(sorted(common)) if len(common) == 1 else tuple(sorted(ends))
    yield Finding(
        cause=Cause.NETWORK_FAULT,
        summary=f"Transfers between {name_ranks(ends)} failed on the network; nothing tells which end is at fault."[
            :200
        ],
        guilty_ranks=ranks,
        confidence=Confidence.POSSIBLE if len(ends) > 4 else Confidence.PROBABLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        evidence=tuple(cite_said(said, f"rank {said.record.rank} lost a transfer") for said in errors[:3]),
        next_steps=("run ib_write_bw (or iperf3) between these two hosts, on that adapter, both ways",),
        fix=_FIX,
    )


def _peer(case: Case, said: Said) -> int | None:
    """The rank at the other end: its own error names our address; else the same adapter's rank on the peer's host."""
    what = said.record.what
    assert isinstance(what, NetworkError)
    for other, theirs in case.logs.facts(NetworkError):
        if other.record.rank in (None, said.record.rank):
            continue
        if theirs.local_address and theirs.local_address == what.remote_address:
            return other.record.rank
    return _by_rail(case, said)


def _by_rail(case: Case, said: Said) -> int | None:
    """Ranks talk over the adapter of their own place in the host: the one in the same place there."""
    rank, what = said.record.rank, said.record.what
    assert isinstance(what, NetworkError)
    here = case.host_of(rank) if rank is not None else None
    hosts = {host for host in case.logs.host_of.values() if host != here}
    if here is None or rank is None or len(hosts) != 1:
        return None
    own, theirs = case.ranks_of_host(here), case.ranks_of_host(hosts.pop())
    place = own.index(rank) if rank in own else None
    return theirs[place] if place is not None and len(own) == len(theirs) else None


DETECTOR = Detector(causes=(Cause.NETWORK_FAULT,), detect=detect)
