"""Clocks of hosts, brought to that of the machine that collected.

In: what the collection measured of each host. Out: moments corrected by it. A log given by hand has no such measure:
its times are taken as they are printed.
"""

from collections.abc import Iterable, Mapping

from ncclprobe.model.manifest import HostOutcome


def clock_offsets(hosts: Iterable[HostOutcome]) -> dict[str, int]:
    """By how many nanoseconds each host's clock is ahead; hosts that were not measured are left out."""
    return {host.name: host.clock_offset_ns for host in hosts if host.clock_offset_ns}


def corrected(when_ns: int | None, host: str | None, offsets: Mapping[str, int]) -> int | None:
    """The moment by the collecting machine's clock; None where it is not known."""
    return None if when_ns is None else when_ns - offsets.get(host or "", 0)
