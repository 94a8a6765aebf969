"""Ports that are down, and counters that grow."""

from typing import Any

import pytest

from ncclprobe.analyze.ports import find_port_troubles
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.nic import PortLook
from ncclprobe.model.records import Sourced


def look(
    host: str, device: str, state: str = "ACTIVE", *, number: int = 1, port: int | None = 1, **fields: Any
) -> Sourced[PortLook]:
    artifact = Artifact(path=f"hosts/{host}/nic/{number}", kind=Kind.NIC, host=host, origin="/sys", look=number)
    return Sourced(artifact, PortLook(device=device, port=port, state=state, **fields))


def test_healthy_ports() -> None:
    assert find_port_troubles([look("n1", "mlx5_0"), look("n1", "mlx5_1"), look("n2", "mlx5_0")]) == ()
    assert find_port_troubles([]) == ()


def test_a_port_that_is_down_while_the_same_one_of_another_host_is_up() -> None:
    looks = [look("n1", "mlx5_0"), look("n2", "mlx5_0", "DOWN", physical_state="Polling")]
    (trouble,) = find_port_troubles(looks)
    assert (trouble.host, trouble.device, trouble.port, trouble.is_down, trouble.is_heavy) == (
        "n2",
        "mlx5_0",
        1,
        True,
        True,
    )
    assert trouble.says == "DOWN (Polling) while the same port of other hosts is up"


def test_a_port_that_is_down_on_every_host_may_have_no_cable() -> None:
    looks = [look(host, name, state) for host in ("n1", "n2") for name, state in (("a", "ACTIVE"), ("b", "DOWN"))]
    assert [(one.host, one.device, one.is_heavy) for one in find_port_troubles(looks)] == [
        ("n1", "b", False),
        ("n2", "b", False),
    ]


def test_a_host_whose_ports_are_all_down_is_not_told_by_its_own_ports() -> None:
    assert find_port_troubles([look("n1", "a", "DOWN"), look("n1", "b", "DOWN")]) == ()
    assert find_port_troubles([look("n1", "a", "DOWN"), look("n1", "eth0", "up", port=None)]) == ()


@pytest.mark.parametrize(
    ("name", "is_heavy"),
    [
        ("link_downed", True),
        ("local_ack_timeout_err", True),
        ("carrier_changes", True),
        ("symbol_error", False),
        ("port_rcv_errors", False),
        ("out_of_sequence", False),
        ("packet_seq_err", False),
        ("rnr_nak_retry_err", False),
    ],
)
def test_counters_that_grow(name: str, is_heavy: bool) -> None:
    looks = [look("n1", "a", number=n, counters={name: 10 * n, "port_rcv_data": n}) for n in (2, 1)]
    (trouble,) = find_port_troubles(looks)
    assert (dict(trouble.grown), trouble.is_heavy, trouble.is_down) == ({name: 10}, is_heavy, False)
    assert trouble.says == f"{name} grew by 10"
    assert [one.artifact.look for one in trouble.looks] == [1, 2]


@pytest.mark.parametrize(
    "counters",
    [[{"link_downed": 5}, {"link_downed": 5}], [{"link_downed": 5}, {"link_downed": 0}], [{"link_downed": 5}]],
)
def test_counters_that_stand_still_or_were_reset_say_nothing(counters: list[dict[str, int]]) -> None:
    assert find_port_troubles([look("n1", "a", number=n, counters=those) for n, those in enumerate(counters)]) == ()


def test_heavy_ones_come_first_and_the_order_of_files_does_not_matter() -> None:
    looks = [
        look("n1", "a", number=1, counters={"symbol_error": 1}),
        look("n1", "a", number=2, counters={"symbol_error": 2}),
        look("n2", "a", number=1, counters={"link_downed": 1}),
        look("n2", "a", number=2, counters={"link_downed": 2}),
    ]
    found = find_port_troubles(looks)
    assert [one.host for one in found] == ["n2", "n1"]
    assert find_port_troubles(reversed(looks)) == found
