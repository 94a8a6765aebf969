"""Where a process listens, and whether it can be reached there."""

import os
import socket
from pathlib import Path

import pytest

from ncclprobe.probe.listeners import connect_to, open_ports
from tests.unit.probe.processes import running


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")])
def test_ports_of_all_addresses_that_are_its_own(family: socket.AddressFamily, address: str) -> None:
    with socket.create_server((address, 0), family=family) as listener, running() as other:
        port = listener.getsockname()[1]
        assert port in open_ports(os.getpid())
        assert port not in open_ports(other)
        with connect_to(os.getpid(), port, 1.0) as connection:
            assert connection.getpeername()[1] == port


def test_a_port_of_one_address_or_that_only_talks_is_none() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        ports = open_ports(os.getpid())
        assert not {listener.getsockname()[1], client.getsockname()[1]} & set(ports)


def test_no_process_no_ports(tmp_path: Path) -> None:
    assert open_ports(7, tmp_path) == []


def test_nobody_there_is_an_error() -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        connect_to(os.getpid(), port, 1.0)
