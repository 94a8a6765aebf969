"""Transfers between hosts that failed although both ends live, and who was at the other end.

In: network errors of a `Case`, the addresses that NCCL prints as it starts. Out: `Transfer`s.

A flush, a closed or a refused connection is an echo: it tells that the peer ended, or does not listen yet.
"""

import re
from dataclasses import dataclass

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.logs import Said, is_before
from ncclprobe.model.log import NetworkError, Setting

_DIALLING = re.compile(r"[Cc]onnect(?:ing)? to ")
_ON_THE_WAY = re.compile(r"timed out|No route to host|unreachable|Retry count exceeded", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """`rank` on `host` lost a transfer with `peer` on `peer_host`; None where nothing tells.

    `has_connected`: not where the connection could not even be made, which a wrong address explains as well.
    """

    rank: int
    host: str | None
    peer: int | None
    peer_host: str | None
    said: Said
    has_connected: bool = True


def failed_transfers(case: Case) -> list[Transfer]:
    """Those of ranks that are known, in order of time; none to a host where a process is known to have ended before."""
    hosts, ranks = _hosts_of_addresses(case), _ranks_of_addresses(case)
    ends = [
        (said, _host_named(case, hosts, what, case.logs.host_of.get(said.record.rank)))
        for said, what in case.logs.facts(NetworkError)
        if what.is_echo and what.status is None and said.record.rank is not None
    ]
    found = []
    for said, what in case.logs.facts(NetworkError):
        rank = said.record.rank
        if rank is None or what.is_echo or not _is_on_the_way(what):
            continue
        here = case.host_of(rank)
        peer = ranks.get(what.remote_address) if what.remote_address else None
        there = case.host_of(peer) if peer is not None else _host_named(case, hosts, what, here)
        if there is not None and any(host == there and is_before(end, said) for end, host in ends):
            continue
        peer = peer if peer is not None and peer != rank else _by_rail(case, rank, here, there)
        found.append(
            Transfer(
                rank=rank,
                host=here,
                peer=peer,
                peer_host=there,
                said=said,
                has_connected=not _DIALLING.search(what.text),
            )
        )
    return found


def _is_on_the_way(what: NetworkError) -> bool:
    """An error of a completion, or a call that no answer came to."""
    return what.status is not None or _ON_THE_WAY.search(what.text) is not None


def _hosts_of_addresses(case: Case) -> dict[str, str]:
    """As each process says by which interface it talks; an address that two hosts have tells nothing."""
    found: dict[str, set[str]] = {}
    for said, what in case.logs.facts(Setting):
        if what.name == "address" and said.record.host:
            found.setdefault(what.value.partition(" ")[2], set()).add(said.record.host)
    return {address: hosts.pop() for address, hosts in found.items() if len(hosts) == 1}


def _ranks_of_addresses(case: Case) -> dict[str, int]:
    """Whose own errors name that address as their end."""
    found: dict[str, set[int]] = {}
    for said, what in case.logs.facts(NetworkError):
        if what.local_address and said.record.rank is not None:
            found.setdefault(what.local_address, set()).add(said.record.rank)
    return {address: ranks.pop() for address, ranks in found.items() if len(ranks) == 1}


def _host_named(case: Case, hosts: dict[str, str], what: NetworkError, here: str | None) -> str | None:
    """By its address, or its name; of two hosts the other one, where no rank is on a third that gave no log."""
    if what.peer in hosts:
        return hosts[what.peer]
    known = set(case.logs.host_of.values())
    name = what.peer.partition(".")[0]
    if name in known:
        return name
    others = known - {here}
    return others.pop() if len(known) == 2 and len(others) == 1 and not case.missing else None


def _by_rail(case: Case, rank: int, here: str | None, there: str | None) -> int | None:
    """Ranks talk over the adapter of their own place in the host: to the one in the same place there."""
    if here is None or there is None or here == there:
        return None
    own, theirs = case.ranks_of_host(here), case.ranks_of_host(there)
    place = own.index(rank) if rank in own else None
    return theirs[place] if place is not None and len(own) == len(theirs) else None
