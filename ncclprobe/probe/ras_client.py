"""A client of NCCL's RAS service.

In: the address at which the ranks of a host listen. Out: one report, JSON where the service can (2.28.7 and later).

The protocol (src/ras/client_support.cc): lines of ASCII. `CLIENT PROTOCOL 2` is answered by `SERVER PROTOCOL 2`;
`TIMEOUT 5` and `SET FORMAT json` by `OK` or `ERROR: ...`; `VERBOSE STATUS` by the report, in several writes, after
which the service closes. It takes a closed half of the connection for its end, so ours stays open until then.

All ranks of a host listen at one port, and the kernel picks one for each connection. One that is stopped accepts, and
says nothing: then another connection, from another port, may reach another rank.
"""

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from ncclprobe.model.errors import NcclprobeError

DEFAULT_PORT = 28_028
LIMIT_BYTES = 32 << 20
TIMEOUT_S = 5
"""How long the service may wait for the other ranks; it may take as long again, and a second."""
_REPLY_S = 1.0
_MAX_LINE_BYTES = 1_024
_READ_BYTES = 1 << 16
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens, not where we do


class RasError(NcclprobeError):
    """No report could be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the service of a host listens."""

    host: str = "localhost"
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A report; not `is_whole` where the connection ended early or the report is larger than what is taken."""

    data: bytes
    is_json: bool
    is_whole: bool
    peer: str
    silent: int


def address_of(environ: Mapping[str, str]) -> Address:
    """`NCCL_RAS_ADDR` of a rank (`host:port`, `[::1]:port`); the default where it is not set, or is no address."""
    host, _, port = environ.get("NCCL_RAS_ADDR", "").strip().rpartition(":")
    host = host.strip("[]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 1 << 16:
        return Address()
    return Address(host=_ANY.get(host, host), port=int(port))


def ask(address: Address, *, deadline: float, attempts: int) -> Answer:
    """One report; RasError when nobody listens, or nobody answers in `attempts` or before `deadline` (monotonic)."""
    targets, silent, reason = _targets(address), 0, "nobody listens"
    while targets and silent < attempts and time.monotonic() < deadline:
        target = targets[silent % len(targets)]
        try:
            connection = _Connection(target, deadline)
        except OSError as error:
            targets.remove(target)
            reason = error.strerror or str(error)
            continue
        with connection:
            try:
                return connection.report(silent)
            except OSError:  # silent, or gone while we spoke
                silent += 1
    if silent:
        advice = "their processes may be stopped: see the state of the ranks, and their stacks"
        raise RasError(f"{silent} connections to {address} were accepted and not answered", advice)
    advice = "RAS is off (NCCL_RAS_ENABLE=0), or listens elsewhere (NCCL_RAS_ADDR): see 'RAS client' in the NCCL log"
    raise RasError(f"no connection to {address}: {reason}", advice)


def _targets(address: Address) -> list[tuple[socket.AddressFamily, str]]:
    """Of localhost both families, for the service binds but one of them."""
    if address.host == "localhost":
        pairs = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
        return [(family, f"{host} {address.port}") for family, host in pairs]
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise RasError(f"{address} cannot be resolved: {error}", "see NCCL_RAS_ADDR in the job's environment") from None
    unique = dict.fromkeys((family, f"{place[0]} {address.port}") for family, *_, place in found)
    return [(family, place) for family, place in unique if family in (socket.AF_INET, socket.AF_INET6)]


class _Connection:
    """A connection to one rank; OSError when it says nothing in time or goes away before it has said anything."""

    def __init__(self, target: tuple[socket.AddressFamily, str], deadline: float) -> None:
        family, place = target
        host, _, port = place.rpartition(" ")
        self._deadline = deadline
        self._buffer = b""
        self._peer = str(Address(host=host, port=int(port)))
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._wait_at_most(_REPLY_S)
            self._socket.connect((host, int(port)))
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> "_Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def report(self, silent: int) -> Answer:
        """The whole conversation."""
        greeting = self._say("CLIENT PROTOCOL 2")
        if not greeting.upper().startswith("SERVER PROTOCOL"):
            advice = "see which process listens there: ss -ltnp"
            raise RasError(f"what listens at {self._peer} is not NCCL's RAS service", advice)
        self._say(f"TIMEOUT {TIMEOUT_S}")
        is_json = self._say("SET FORMAT json").upper() == "OK"
        self._socket.sendall(b"VERBOSE STATUS\n")
        data, has_ended = self._read_all(time.monotonic() + 2 * TIMEOUT_S + _REPLY_S)
        if not data:
            raise OSError("no report")
        is_whole = has_ended and (data.rstrip().endswith(b"}") if is_json else b"\nWarnings\n" in data)
        return Answer(data=data, is_json=is_json, is_whole=is_whole, peer=self._peer, silent=silent)

    def _say(self, command: str) -> str:
        """The line that answers a command."""
        self._socket.sendall(command.encode() + b"\n")
        limit = time.monotonic() + _REPLY_S
        while b"\n" not in self._buffer:
            self._wait_at_most(limit - time.monotonic())
            piece = self._socket.recv(_MAX_LINE_BYTES)
            if not piece or len(self._buffer) > _MAX_LINE_BYTES:
                raise ConnectionResetError("it hung up")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("ascii", "replace").strip()

    def _read_all(self, limit: float) -> tuple[bytes, bool]:
        """All that comes until the end, and whether it came."""
        pieces, size = [self._buffer], len(self._buffer)
        with suppress(OSError):
            while size < LIMIT_BYTES:
                self._wait_at_most(limit - time.monotonic())
                piece = self._socket.recv(_READ_BYTES)
                if not piece:
                    return b"".join(pieces), True
                pieces.append(piece)
                size += len(piece)
        return b"".join(pieces)[:LIMIT_BYTES], False

    def _wait_at_most(self, seconds: float) -> None:
        """For the next call; a time of zero would mean not to wait, and to wait for ever is None."""
        left = min(seconds, self._deadline - time.monotonic())
        if left <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left)
