"""The job's network interface is down on one host, and all ranks wait in the same call.

In: looks at the network ports of all hosts, settings, and where the ranks stand. Out: a finding.

A port that is down is common: many have no cable. It explains a hang only if the ranks are told to use it, it is up on
the other hosts, and nothing else keeps the ranks apart: none of them is outside of what the others wait in.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.ports import PortTrouble, find_port_troubles
from ncclprobe.analyze.settings import settings_of
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import Cause, Confidence, Finding

_NAMING = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_FIX = "Bring the interface up again (cable, transceiver, switch port), then restart from the last checkpoint."


def detect(case: Case) -> Iterator[Finding]:
    """Only one host's: with several, the network between them is to blame, not a port."""
    down = [trouble for trouble in find_port_troubles(case.evidence.ports) if trouble.is_down and trouble.is_heavy]
    used = [trouble for trouble in down if _is_used(case, trouble)]
    hosts = {trouble.host for trouble in used}
    if len(hosts) == 1 and _all_wait(case):
        yield from _finding(case, used)


def _is_used(case: Case, trouble: PortTrouble) -> bool:
    """Whether a rank of that host is told to use it; names may be the beginnings of names."""
    ranks = case.ranks_of_host(trouble.host)
    settings = settings_of(case)
    texts = [settings[name][rank].text for name in _NAMING for rank in ranks if rank in settings.get(name, {})]
    names = [
        part.lstrip("=").partition(":")[0] for text in texts if not text.startswith("^") for part in text.split(",")
    ]
    return any(name and trouble.device.startswith(name) for name in names)


def _all_wait(case: Case) -> bool:
    """Whether every rank that was looked into waits for others, in step as far as the recorders tell."""
    if case.mismatches or case.waits.roots or not case.positions or case.looks.moved:
        return False
    return all(p.phase.waits_for_ranks and p.is_still is not False for p in case.positions.values())


def _finding(case: Case, troubles: list[PortTrouble]) -> Iterator[Finding]:
    host = troubles[0].host
    ranks = case.ranks_of_host(host)
    if not set(ranks) < set(case.expected):
        return
    devices = ", ".join(sorted({trouble.device for trouble in troubles}))
    yield Finding(
        cause=Cause.NETWORK_FAULT,
        summary=f"{devices} of {host}, the host of {name_ranks(ranks)}, is down; all ranks wait in the same call."[
            :200
        ],
        guilty_ranks=ranks,
        confidence=Confidence.PROBABLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        evidence=tuple(
            cite(trouble.looks[-1].artifact, f"{trouble.device}", trouble.says, f"the job's interface on {host}")
            for trouble in troubles[:3]
        ),
        next_steps=(f"on {host}: ip link show {troubles[0].device}; ethtool {troubles[0].device}; the switch's log",),
        fix=_FIX,
    )


DETECTOR = Detector(causes=(Cause.NETWORK_FAULT,), detect=detect)
