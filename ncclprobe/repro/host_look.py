"""What a host has for a job.

In: nothing. Out: a JSON line on standard output, which becomes a `Facts`. Runs as a script on the host, by the Python
that is to run the ranks: it imports the standard library only, and is understood by Pythons that are too old.
"""

import fcntl
import importlib.util
import json
import os
import socket
import struct
import sys
from pathlib import Path

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_IFREQ_BYTES, _NAME_BYTES, _ADDRESS = 256, 15, slice(20, 24)


def _address() -> str:
    """The address that our asker has reached this host by: sshd tells."""
    fields = os.environ.get("SSH_CONNECTION", "").split()
    return fields[2] if len(fields) == 4 else ""  # client, its port, server, its port


def _interface_of(address: str) -> str:
    """The network interface with that IPv4 address; empty if none has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            request = struct.pack(f"{_IFREQ_BYTES}s", name.encode()[:_NAME_BYTES])
            try:
                answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, request)
            except OSError:  # it has none
                continue
            if socket.inet_ntoa(answer[_ADDRESS]) == address:
                return name
    return ""


def _free_port() -> int:
    """One that nobody listens on. Between this and the start of rank 0 another program may take it."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Look and tell."""
    address = _address()
    facts = {
        "version": list(sys.version_info[:2]),
        "has_torch": importlib.util.find_spec("torch") is not None,
        "has_gpu": any(Path("/dev").glob("nvidia[0-9]*")),
        "address": address,
        "name": socket.gethostname(),
        "interface": os.environ.get("GLOO_SOCKET_IFNAME") or _interface_of(address),
        "port": _free_port(),
    }
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
