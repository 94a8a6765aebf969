"""Where a process listens for TCP connections, and how to get there.

In: a pid. Out: its listening ports on all addresses; a connection from inside its own network.
"""

import ctypes
import os
import re
import socket
import threading
from contextlib import suppress
from pathlib import Path

from ncclprobe.probe import proc

_LISTEN = "0A"  # include/net/tcp_states.h, as /proc/net/tcp writes it
_CLONE_NEWNET = 0x40000000  # linux/sched.h
_TABLE_LIMIT_BYTES = 8 << 20
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def open_ports(pid: int, root: Path = proc.ROOT) -> list[int]:
    """Ports at which the process listens on every address, over IPv6 or IPv4."""
    mine = _sockets(pid, root)
    ports = set()
    for table in ("net/tcp6", "net/tcp"):
        lines = (proc.read(pid, table, _TABLE_LIMIT_BYTES, root) or b"").decode("ascii", "replace").splitlines()
        for words in map(str.split, lines[1:]):
            address, _, port = words[1].partition(":") if len(words) > 9 else ("", "", "")
            if port and words[3] == _LISTEN and words[9] in mine and not address.strip("0"):
                ports.add(int(port, 16))
    return sorted(ports)


def connect_to(pid: int, port: int, timeout_s: float) -> socket.socket:
    """A connection to a port of the process, whose network the calling thread enters for good; OSError if not."""
    _enter_network(pid)
    try:
        return socket.create_connection(("::1", port), timeout_s)
    except OSError:
        return socket.create_connection(("127.0.0.1", port), timeout_s)


def _enter_network(pid: int) -> None:
    theirs = proc.link(pid, "ns/net")
    if theirs is None or theirs == proc.link(os.getpid(), f"task/{threading.get_native_id()}/ns/net"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"its network cannot be entered: {os.strerror(number)}")
    finally:
        os.close(descriptor)


def _sockets(pid: int, root: Path) -> set[str]:
    """Inodes of its sockets."""
    found = set()
    with suppress(OSError):
        for name in os.listdir(root / str(pid) / "fd"):
            match = _SOCKET.fullmatch(proc.link(pid, f"fd/{name}", root) or "")
            if match:
                found.add(match[1])
    return found
