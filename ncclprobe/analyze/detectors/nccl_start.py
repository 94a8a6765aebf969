"""NCCL's own start goes wrong: a host that offers the wrong interface, or ranks that never call it.

In: addresses, connections that fail, communicator lines. Out: a finding. Ranks that cannot connect are victims; the
host whose address they dial, by another interface than everybody else's, is the cause.
"""

from collections import defaultdict
from collections.abc import Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.logs import Said, cite_said
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import CommEvent, NetworkError, Setting, WorkTimeout
from ncclprobe.model.report import BlockedOn, Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """Nothing once a communicator of all ranks was complete, or a collective was waited in."""
    events = [what for _, what in case.logs.facts(CommEvent)]
    has_started = any(what.event == "init-complete" and what.size == case.world_size for what in events)
    if has_started or any(case.logs.of(WorkTimeout)) or case.timelines or case.ops.heard:
        return
    found = list(_wrong_interface(case))
    yield from found
    if not found and not events:
        yield from _never_called(case)


def _wrong_interface(case: Case) -> Iterator[Finding]:
    """The hosts that are dialled in vain all have another interface than the others."""
    address_of, interface_of, said_of = _addresses(case)
    dialled: dict[str, list[Said]] = defaultdict(list)
    for said, what in case.logs.facts(NetworkError):
        if not what.is_echo and what.peer in address_of:
            dialled[address_of[what.peer]].append(said)
    by_interface: dict[str, list[str]] = defaultdict(list)
    for host, interface in interface_of.items():
        by_interface[interface].append(host)
    usual = max(by_interface, key=lambda name: (len(by_interface[name]), name), default="")
    odd = sorted(host for host, interface in interface_of.items() if interface != usual)
    if not dialled or set(dialled) != set(odd) or 2 * len(odd) >= len(interface_of):
        return
    ranks = tuple(sorted(rank for host in odd for rank in case.ranks_of_host(host)))
    host = odd[0]
    yield Finding(
        cause=Cause.INIT_MISCONFIGURED,
        summary=(
            f"{', '.join(odd)}, the host of {name_ranks(ranks)}, talks by {interface_of[host]}, the others by {usual}; "
            "they cannot connect to it."
        )[:200],
        guilty_ranks=ranks,
        confidence=Confidence.PROBABLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        evidence=(
            cite_said(said_of[host], f"{host} talks by {interface_of[host]}"),
            cite_said(dialled[host][0], f"{host} cannot be reached at that address"),
        ),
        next_steps=(f"on {host}: ip -br address; set NCCL_SOCKET_IFNAME to the interface that all hosts share",),
        fix="Set NCCL_SOCKET_IFNAME alike on all hosts, or exclude bridges: NCCL_SOCKET_IFNAME=^docker,lo,virbr.",
    )


def _addresses(case: Case) -> tuple[dict[str, str], dict[str, str], dict[str, Said]]:
    """The host of each address, the interface of each host, and the line that says it."""
    address_of: dict[str, str] = {}
    interface_of: dict[str, str] = {}
    said_of: dict[str, Said] = {}
    for said, what in case.logs.facts(Setting):
        if what.name == "address" and said.record.host:
            interface, _, address = what.value.partition(" ")
            address_of[address] = said.record.host
            interface_of.setdefault(said.record.host, interface)
            said_of.setdefault(said.record.host, said)
    return address_of, interface_of, said_of


def _never_called(case: Case) -> Iterator[Finding]:
    """NCCL before 2.18 prints nothing as it begins to join: who has set up the network waits for who has not."""
    waiting = {
        said.record.rank: said
        for said, what in case.logs.facts(Setting)
        if what.name == "network" and said.record.rank is not None
    }
    absent = tuple(rank for rank in case.expected if rank not in waiting)
    if case.world_size is None or not absent or 2 * len(waiting) <= len(case.expected):
        return
    is_heard = set(absent) <= case.logs.heard
    yield Finding(
        cause=Cause.RANK_NEVER_JOINED,
        summary=(
            f"{name_ranks(absent).capitalize()} never called NCCL, where {name_ranks(waiting)} wait for all "
            f"{case.world_size} ranks."
        )[:200],
        guilty_ranks=absent if is_heard else (),
        suspects=() if is_heard else absent,
        confidence=Confidence.POSSIBLE,
        victims=tuple(sorted(waiting)),
        blocked_on=BlockedOn(group="default_pg", seq=None, op="init"),
        evidence=(cite_said(waiting[min(waiting)], f"{name_ranks(waiting)} wait in set-up"),),
        next_steps=(f"look at the stacks of {name_ranks(absent)}: what they do before their first collective",),
        fix="Free those ranks, or start the missing ones.",
    )


DETECTOR = Detector(causes=(Cause.INIT_MISCONFIGURED, Cause.RANK_NEVER_JOINED), detect=detect)
