"""Network ports that are down while others are up, and error counters that grow between two looks.

In: port looks of all hosts. Out: a `PortTrouble` each, the heaviest first.

A port that nobody uses is down as well, so a port counts more where the same port of other hosts is up. Counters count
since the host was started: only their growth while the job hung says something about the job.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ncclprobe.model.nic import PortLook
from ncclprobe.model.records import Sourced

# Growth of these means that a link broke or a peer did not answer; of the others, that the link is bad or congested.
HEAVY_COUNTERS = frozenset(
    {
        "link_downed", "link_down_events_phy", "carrier_changes", "local_ack_timeout_err",
        "req_transport_retries_exceeded", "retrans_timeout_events", "unresponsive_remote_events",
    }
)  # fmt: skip
LIGHT_COUNTERS = frozenset(
    {
        "symbol_error", "port_rcv_errors", "link_error_recovery", "local_link_integrity_errors",
        "excessive_buffer_overrun_errors", "out_of_sequence", "packet_seq_err", "rnr_nak_retry_err",
        "implied_nak_seq_err", "rx_icrc_encapsulated", "impaired_remote_conn_events", "rx_crc_errors",
        "tx_carrier_errors", "rx_errors", "tx_errors",
    }
)  # fmt: skip
Name = tuple[str, int | None]

_UP, _DOWN = ("ACTIVE", "up"), ("DOWN", "INIT", "ARMED", "down", "lowerlayerdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTrouble:
    """What is wrong with a port. `grown`: by how much each counter grew. `says`: all of it in words.

    `is_heavy`: it is down although the same port of another host is up, or a counter of `HEAVY_COUNTERS` grew.
    """

    host: str
    device: str
    port: int | None
    is_down: bool
    is_heavy: bool
    grown: Mapping[str, int]
    says: str
    looks: tuple[Sourced[PortLook], ...]


def find_port_troubles(looks: Iterable[Sourced[PortLook]]) -> tuple[PortTrouble, ...]:
    """Every port in trouble, heavy ones first, then in order of host and name."""
    ports: dict[tuple[str, str, int | None], list[Sourced[PortLook]]] = defaultdict(list)
    for look in looks:
        ports[look.artifact.host, look.record.device, look.record.port].append(look)
    up_on: dict[Name, set[str]] = defaultdict(set)
    up_at: dict[tuple[str, bool], set[Name]] = defaultdict(set)
    for (host, device, port), those in ports.items():
        if _last(those).state in _UP:
            up_on[device, port].add(host)
            up_at[host, port is None].add((device, port))
    found = []
    for (host, device, port), those in ports.items():
        others_up, elsewhere = up_at[host, port is None], up_on[device, port] - {host}
        trouble = _trouble(host, those, has_peer_up=bool(others_up), is_up_elsewhere=bool(elsewhere))
        if trouble is not None:
            found.append(trouble)
    return tuple(sorted(found, key=lambda one: (not one.is_heavy, one.host, one.device, one.port or 0)))


def _trouble(
    host: str, given: list[Sourced[PortLook]], *, has_peer_up: bool, is_up_elsewhere: bool
) -> PortTrouble | None:
    looks = sorted(given, key=_when_ns)
    last, grown = looks[-1].record, _grown(looks)
    is_down = last.state in _DOWN and (has_peer_up or is_up_elsewhere)
    if not is_down and not grown:
        return None
    return PortTrouble(
        host=host,
        device=last.device,
        port=last.port,
        is_down=is_down,
        is_heavy=(is_down and is_up_elsewhere) or not HEAVY_COUNTERS.isdisjoint(grown),
        grown=grown,
        says=_says(last, grown, is_down=is_down, is_up_elsewhere=is_up_elsewhere),
        looks=tuple(looks),
    )


def _grown(looks: list[Sourced[PortLook]]) -> dict[str, int]:
    """From the first look to the last; a counter that went back was reset and says nothing."""
    first, last = looks[0].record.counters, looks[-1].record.counters
    names = (HEAVY_COUNTERS | LIGHT_COUNTERS) & first.keys() & last.keys()
    return {name: last[name] - first[name] for name in sorted(names) if last[name] > first[name]}


def _last(looks: list[Sourced[PortLook]]) -> PortLook:
    return max(looks, key=_when_ns).record


def _when_ns(look: Sourced[PortLook]) -> tuple[int, int]:
    when_ns = look.record.time_ns if look.record.time_ns is not None else look.artifact.start_ns
    return (when_ns or 0, look.artifact.look or 0)


def _says(last: PortLook, grown: Mapping[str, int], *, is_down: bool, is_up_elsewhere: bool) -> str:
    parts = []
    if is_down:
        physical = f" ({last.physical_state})" if last.physical_state else ""
        where = "the same port of other hosts is up" if is_up_elsewhere else "other ports of this host are up"
        parts.append(f"{last.state}{physical} while {where}")
    parts += [f"{name} grew by {count}" for name, count in grown.items()]
    return ", ".join(parts)
