"""State and error counters of the network ports at two looks.

In: /sys/class/infiniband and /sys/class/net. Out: a JSON file a look, `{"ports": [...]}`; nothing without a port.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.probe import proc
from ncclprobe.probe.source import Context, Disturbance, Found, Source

_SYS = Path("/sys/class")
_MAX_PORTS = 256  # hosts with virtual functions have hundreds, and each is read from its firmware
_MAX_BYTES = 4_096
_RESERVE_S = 1.0

# Those that stand still on a healthy port, and what tells whether it is used at all.
_COUNTERS = (
    *("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors"),
    *("local_link_integrity_errors", "excessive_buffer_overrun_errors", "port_xmit_discards", "port_xmit_wait"),
    *("port_rcv_data", "port_xmit_data"),
)
_HARDWARE_COUNTERS = (
    *("local_ack_timeout_err", "out_of_sequence", "packet_seq_err", "rnr_nak_retry_err", "implied_nak_seq_err"),
    *("req_transport_retries_exceeded", "req_cqe_error", "rx_icrc_encapsulated", "roce_adp_retrans"),
    *("roce_slow_restart", "np_cnp_sent", "rp_cnp_handled", "out_of_buffer"),
    *("retrans_pkts", "retrans_timeout_events", "unresponsive_remote_events", "impaired_remote_conn_events"),
)
_NAMING = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_STATISTICS = (
    *("rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_crc_errors", "rx_missed_errors"),
    *("tx_carrier_errors", "rx_bytes", "tx_bytes"),
)


def collect(context: Context) -> Iterator[Found | Gap]:
    """Both looks, the options' interval apart; a host that shows more ports than are read says so in a gap."""
    started = time.monotonic()
    for look in (1, 2):
        if look > 1:
            left_s = context.deadline - _RESERVE_S - time.monotonic()
            time.sleep(max(0.0, min(started + context.options.interval_s - time.monotonic(), left_s)))
        start_ns = time.time_ns()
        places = [*_fabric_ports(), *_interfaces(_named_by_job(context))]
        if not places:
            return
        ports = [read(place) for place, read in places[:_MAX_PORTS]]
        yield Found(
            file=f"ports.look{look}.json",
            kind=Kind.NIC,
            origin="/sys/class/infiniband, /sys/class/net",
            data=json.dumps({"ports": ports}, indent=1).encode(),
            look=look,
            start_ns=start_ns,
            end_ns=time.time_ns(),
        )
        if look == 1 and len(places) > _MAX_PORTS:
            yield _left_out(context, len(places))


def _left_out(context: Context, count: int) -> Gap:
    return Gap(
        who=context.host,
        what=f"{count - _MAX_PORTS} network ports",
        why=f"there are {count}, and at most {_MAX_PORTS} are looked at",
        action="nothing, when the others decide; else read /sys/class/net on the host",
    )


def _fabric_ports() -> Iterator[tuple[Path, Any]]:
    for device in _listed(_SYS / "infiniband"):
        yield from ((port, _fabric_port) for port in _listed(device / "ports"))


def _named_by_job(context: Context) -> tuple[str, ...]:
    """Beginnings of the names of interfaces that the ranks are told to use: `eth1`, `=eth1`, `ib,bond0`."""
    environments = (proc.environ(rank.pid) or {} for rank in context.ranks)
    texts = {environ.get(name, "") for environ in environments for name in _NAMING}
    wanted = (
        part.lstrip("=").partition(":")[0] for text in texts if not text.startswith("^") for part in text.split(",")
    )
    return tuple(sorted({name for name in wanted if name}))


def _interfaces(named: tuple[str, ...]) -> Iterator[tuple[Path, Any]]:
    """Those with hardware behind them, bonds of such, and what the job uses; in a container, where none has, all."""
    interfaces = [interface for interface in _listed(_SYS / "net") if interface.name != "lo"]
    real = [one for one in interfaces if (one / "device").exists() or (one / "bonding").exists()]
    for interface in interfaces:
        if not real or interface in real or (bool(named) and interface.name.startswith(named)):
            yield interface, _interface


def _fabric_port(port: Path) -> dict[str, Any]:
    device = port.parent.parent
    return {
        "device": device.name,
        "port": int(port.name) if port.name.isdecimal() else None,
        "time_ns": time.time_ns(),
        "state": _read(port / "state"),
        "physical_state": _read(port / "phys_state"),
        "rate": _read(port / "rate"),
        "link_layer": _read(port / "link_layer"),
        "bus_id": _bus_id(device),
        "counters": _numbers(port / "counters", _COUNTERS) | _numbers(port / "hw_counters", _HARDWARE_COUNTERS),
    }


def _interface(interface: Path) -> dict[str, Any]:
    speed = _read(interface / "speed")  # Mbit/s; an error where the link is down
    return {
        "device": interface.name,
        "port": None,
        "time_ns": time.time_ns(),
        "state": _read(interface / "operstate"),
        "physical_state": "",
        "rate": f"{int(speed) / 1000:g} Gb/sec" if speed.isdecimal() and int(speed) > 0 else "",
        "link_layer": "Ethernet",
        "bus_id": _bus_id(interface),
        "counters": _numbers(interface / "statistics", _STATISTICS) | _numbers(interface, ("carrier_changes",)),
    }


def _bus_id(device: Path) -> str:
    """The name of the PCI device behind it; other names, of virtual ones, are none."""
    try:
        return (device / "device").resolve().name
    except (OSError, RuntimeError):  # a loop of links
        return ""


def _numbers(folder: Path, names: tuple[str, ...]) -> dict[str, int]:
    texts = ((name, _read(folder / name)) for name in names)
    return {name: int(text) for name, text in texts if text.isdecimal()}


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    """Its text; empty where the driver has no such file, or refuses to read it."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""


SOURCE = Source(name="nic", disturbs=Disturbance.NOTHING, collect=collect, timeout_s=10.0, looks=2)
