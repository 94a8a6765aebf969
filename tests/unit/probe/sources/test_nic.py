"""Network ports, read from a made-up /sys."""

from pathlib import Path

import pytest

from ncclprobe.model.nic import PortLook
from ncclprobe.parse import nic as nic_format
from ncclprobe.probe.source import Found
from ncclprobe.probe.sources import nic
from ncclprobe.probe.sources.nic import SOURCE
from tests.unit.probe.sources.context import collect, context


@pytest.fixture
def sys_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(nic, "_SYS", tmp_path)
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def adapter(sys_class: Path, name: str, state: str = "4: ACTIVE", bus_id: str = "0000:5e:00.0") -> Path:
    port = sys_class / "infiniband" / name / "ports" / "1"
    write(
        port,
        {
            "state": state,
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            "link_layer": "InfiniBand",
            "counters/link_downed": "2",
            "counters/port_rcv_data": "18446744073709551615",
            "counters/unheard_of": "7",
            "hw_counters/local_ack_timeout_err": "11",
        },
    )
    put_device(sys_class, port.parent.parent, bus_id)
    return port


def put_device(sys_class: Path, owner: Path, bus_id: str) -> None:
    (sys_class / "pci" / bus_id).mkdir(parents=True, exist_ok=True)
    (owner / "device").symlink_to(sys_class / "pci" / bus_id)


def interface(sys_class: Path, name: str, **files: str) -> Path:
    folder = sys_class / "net" / name
    write(folder, {"operstate": "up", "speed": "25000", "statistics/rx_errors": "3", "carrier_changes": "4", **files})
    return folder


def ports_in(item: Found) -> tuple[PortLook, ...]:
    parsed = nic_format.parse(item.data)
    assert parsed.problems == ()
    return parsed.records


def test_two_looks_at_an_adapter(sys_class: Path) -> None:
    adapter(sys_class, "mlx5_0")
    first, second = collect(SOURCE, context())[0]
    assert [(item.file, item.look) for item in (first, second)] == [("ports.look1.json", 1), ("ports.look2.json", 2)]
    (port,) = ports_in(first)
    assert (port.device, port.port, port.state, port.physical_state) == ("mlx5_0", 1, "ACTIVE", "LinkUp")
    assert (port.rate_gbps, port.bus_id) == (400.0, "0000:5e:00.0")
    assert port.counters == {"link_downed": 2, "local_ack_timeout_err": 11, "port_rcv_data": 2**64 - 1}
    assert port.time_ns is not None


def test_interfaces_with_hardware_and_bonds_of_them(sys_class: Path) -> None:
    put_device(sys_class, interface(sys_class, "eth0"), "0000:01:00.0")
    put_device(sys_class, interface(sys_class, "eth1", operstate="down", speed="-1"), "virtio0")
    interface(sys_class, "bond0", **{"bonding/mode": "802.3ad"})
    interface(sys_class, "lo")
    interface(sys_class, "veth1")
    bond, first, second = ports_in(collect(SOURCE, context())[0][0])
    assert (bond.device, bond.bus_id, bond.rate_gbps) == ("bond0", None, 25.0)
    assert (first.device, first.port, first.state, first.bus_id) == ("eth0", None, "up", "0000:01:00.0")
    assert first.counters == {"rx_errors": 3, "carrier_changes": 4}
    assert (second.device, second.state, second.rate_gbps, second.bus_id) == ("eth1", "down", None, None)


def test_files_that_are_not_there_cost_only_themselves(sys_class: Path) -> None:
    port = adapter(sys_class, "efa_0")
    for name in ("phys_state", "rate", "counters/link_downed"):
        (port / name).unlink()
    (look,) = ports_in(collect(SOURCE, context())[0][0])
    assert (look.state, look.physical_state, look.rate_gbps) == ("ACTIVE", "", None)


def test_a_host_without_a_port_says_nothing(sys_class: Path) -> None:
    assert collect(SOURCE, context()) == ([], [])


def test_too_many_ports_are_a_gap(sys_class: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nic, "_MAX_PORTS", 2)
    for number in range(5):
        adapter(sys_class, f"mlx5_{number}")
    found, (gap,) = collect(SOURCE, context())
    assert [len(ports_in(item)) for item in found] == [2, 2]
    assert (gap.what, gap.why) == ("3 network ports", "there are 5, and at most 2 are looked at")


def test_the_real_machine() -> None:
    for item in collect(SOURCE, context())[0]:
        assert ports_in(item)
