"""Network ports as the probe and as people write them."""

import json

import pytest

from ncclprobe.model.errors import ParseError
from ncclprobe.model.nic import PortLook
from ncclprobe.parse.nic import is_nic, parse

IBSTAT = """CA 'mlx5_0'
	CA type: MT4129
	Number of ports: 1
	Firmware version: 28.39.1002
	Port 1:
		State: Active
		Physical state: LinkUp
		Rate: 400
		Base lid: 12
		Link layer: InfiniBand
CA 'mlx5_1'
	CA type: MT4129
	Port 1:
		State: Down
		Physical state: Polling
		Rate: 10
"""
DEVINFO = """hca_id:	mlx5_2
	transport:			InfiniBand (0)
	fw_ver:				28.39.1002
	phys_port_cnt:			1
		port:	1
			state:			PORT_ACTIVE (4)
			max_mtu:		4096 (5)
			link_layer:		Ethernet

hca_id:	mlx5_3
		port:	1
			state:			PORT_DOWN (1)
"""
IP_LINK = """1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    RX:  bytes packets errors dropped  missed   mcast
          1000      10      0       0       0       0
    TX:  bytes packets errors dropped carrier collsns
          1000      10      0       0       0       0
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT group default qlen 1000
    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff
    RX:  bytes packets errors dropped  missed   mcast
        123456     789      3       2       1       0
    TX:  bytes packets errors dropped carrier collsns
        654321     987      0       5       4       0
3: eth1: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 9000 qdisc mq state DOWN mode DEFAULT group default qlen 1000
    link/ether 02:00:00:00:00:02 brd ff:ff:ff:ff:ff:ff
"""
ETHTOOL = """$ ethtool -S ens1f0
NIC statistics:
     rx_packets: 123
     rx_out_of_buffer: 7
     link_down_events_phy: 2
"""
SYSFS = """/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE
/sys/class/infiniband/mlx5_0/ports/1/phys_state:5: LinkUp
/sys/class/infiniband/mlx5_0/ports/1/rate:400 Gb/sec (4X NDR)
/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:3
/sys/class/infiniband/mlx5_1/ports/1/hw_counters/out_of_sequence:9
/sys/class/infiniband/mlx5_1/ports/1/state:1: DOWN
"""
Facts = tuple[str, int | None, str, str, float | None]


def facts(text: str) -> list[Facts]:
    parsed = parse(text.encode())
    assert parsed.problems == ()
    assert is_nic(text.encode())
    return [(port.device, port.port, port.state, port.physical_state, port.rate_gbps) for port in parsed.records]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (IBSTAT, [("mlx5_0", 1, "ACTIVE", "LinkUp", 400.0), ("mlx5_1", 1, "DOWN", "Polling", 10.0)]),
        (DEVINFO, [("mlx5_2", 1, "ACTIVE", "", None), ("mlx5_3", 1, "DOWN", "", None)]),
        (IP_LINK, [("lo", None, "up", "", None), ("eth0", None, "up", "", None), ("eth1", None, "down", "", None)]),
        (SYSFS, [("mlx5_0", 1, "ACTIVE", "LinkUp", 400.0), ("mlx5_1", 1, "DOWN", "", None)]),
        ("mlx5_0 port 1 ==> ens1 (Up)\nmlx5_1 port 1 ==> ens2 (Down)\n",
         [("mlx5_0", 1, "ACTIVE", "", None), ("mlx5_1", 1, "DOWN", "", None)]),
        ("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1\n", [("mlx5_0", 1, "ACTIVE", "LINK_UP", None)]),
        ("link mlx5_0/1 subnet_prefix fe80:: lid 12 state DOWN physical_state POLLING\n",
         [("mlx5_0", 1, "DOWN", "POLLING", None)]),
        ("$ ibstat\n" + IBSTAT, [("mlx5_0", 1, "ACTIVE", "LinkUp", 400.0), ("mlx5_1", 1, "DOWN", "Polling", 10.0)]),
    ],
    ids=["ibstat", "ibv_devinfo", "ip", "sysfs", "ibdev2netdev", "rdma", "rdma-ib", "session"],
)  # fmt: skip
def test_tools(text: str, expected: list[Facts]) -> None:
    assert facts(text) == expected


def test_counters() -> None:
    assert parse(IP_LINK.encode()).records[1].counters == {
        "rx_errors": 3,
        "rx_dropped": 2,
        "rx_missed_errors": 1,
        "tx_errors": 0,
        "tx_dropped": 5,
        "tx_carrier_errors": 4,
    }
    (port,) = parse(ETHTOOL.encode()).records
    assert port.device == "ens1f0"
    assert port.counters == {"rx_packets": 123, "rx_out_of_buffer": 7, "link_down_events_phy": 2}
    assert [port.counters for port in parse(SYSFS.encode()).records] == [{"link_downed": 3}, {"out_of_sequence": 9}]


def test_the_probe_s_json() -> None:
    port = {
        "device": "mlx5_0", "port": 1, "time_ns": 5, "state": "4: ACTIVE", "physical_state": "5: LinkUp",
        "rate": "200 Gb/sec (4X HDR)", "bus_id": "0000:5e:00.0", "counters": {"link_downed": 1},
    }  # fmt: skip
    assert parse(json.dumps({"ports": [port]}).encode()).records == (
        PortLook(
            device="mlx5_0",
            port=1,
            state="ACTIVE",
            physical_state="LinkUp",
            rate_gbps=200.0,
            time_ns=5,
            counters={"link_downed": 1},
            bus_id="0000:5e:00.0",
        ),
    )


@pytest.mark.parametrize("change", [{"port": -1}, {"counters": [1]}, {"counters": {"a": "1"}}, {"state": 4}])
def test_a_damaged_port_costs_itself(change: dict[str, object]) -> None:
    ports = [{"device": "a", "port": 1, "state": "up", **change}, {"device": "b", "state": "down"}]
    parsed = parse(json.dumps({"ports": ports}).encode())
    assert [port.device for port in parsed.records] == ["b"]
    assert len(parsed.problems) == 1


@pytest.mark.parametrize("text", ["", "hello", "[rank0]: state UP", '{"processes": []}', "  State: Active\n"])
def test_what_is_none(text: str) -> None:
    assert not is_nic(text.encode())
    with pytest.raises(ParseError):
        parse(text.encode())
