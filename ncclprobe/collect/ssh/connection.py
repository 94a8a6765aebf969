"""An SSH connection to a host whose key is trusted, cut off at the deadline.

In: `SshSettings` and what known_hosts say. Out: a `Connection`; the next step is to log in on its transport.
"""

import threading
import time
from collections.abc import Sequence

import paramiko
from paramiko.packet import Packetizer

from ncclprobe.collect.ssh.known_hosts import HostKey, KeyStatus, KnownHosts
from ncclprobe.collect.ssh.settings import SshSettings
from ncclprobe.collect.ssh.stream import Stream
from ncclprobe.collect.transport import HostError, SilentHostError
from ncclprobe.collect.transport.deadline import remaining_s
from ncclprobe.collect.transport.quoting import quoted

KEEPALIVE_S = 15
# Steps end this long before the deadline, so that their own words are heard and not the deadline's.
DEADLINE_MARGIN_S = 0.3
MIN_STEP_S = 0.1

_RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa")


def step_s(deadline: float, limit_s: float) -> float:
    """How long one step of connecting may take. HostError after the deadline."""
    return min(limit_s, max(MIN_STEP_S, remaining_s(deadline) - DEADLINE_MARGIN_S))


class Connection:
    """A paramiko transport over a stream. At the deadline the stream is cut, which ends every wait on it."""

    def __init__(self, stream: Stream, deadline: float) -> None:
        self.deadline = deadline
        self._stream = stream
        self.transport = paramiko.Transport(stream.sock, packetizer_class=_UntimedPacketizer)
        self._timer = threading.Timer(remaining_s(deadline), stream.cut)
        self._timer.daemon = True
        self._timer.start()

    def negotiate(self, wait_s: float, known_kinds: Sequence[str]) -> HostKey:
        """The SSH handshake, asking for a key of a known kind first; the key is the host's to prove, ours to judge."""
        self._prefer(known_kinds)
        self.transport.banner_timeout = wait_s
        start = time.monotonic()
        try:
            self.transport.start_client(timeout=wait_s)
            key = self.transport.get_remote_server_key()  # an error too when the handshake was not done in time
        except Exception as error:  # noqa: BLE001 - what a hostile server makes paramiko raise is of any kind
            raise self._handshake_error(error, time.monotonic() - start, wait_s) from None
        self.transport.set_keepalive(KEEPALIVE_S)
        return HostKey(kind=key.get_name(), blob=key.asbytes())

    def close(self) -> None:
        """Ends it at once, from any thread."""
        self._timer.cancel()
        self._stream.cut()
        self.transport.close()
        self._stream.sock.close()

    def _prefer(self, known_kinds: Sequence[str]) -> None:
        options = self.transport.get_security_options()
        wanted = [name for kind in known_kinds for name in (_RSA_SIGNATURES if kind == "ssh-rsa" else (kind,))]
        first = [name for name in wanted if name in options.key_types]
        options.key_types = tuple(first + [name for name in options.key_types if name not in first])

    def _handshake_error(self, error: Exception, took_s: float, wait_s: float) -> HostError:
        if took_s >= wait_s - MIN_STEP_S:
            said = "stops in the middle of the SSH handshake" if self.transport.remote_version else "never speaks SSH"
            return SilentHostError(
                f"the host accepts the connection and {said} ({wait_s:.1f} s)",
                "it may be out of memory or processes, or hang on its disk: look at its console",
            )
        if words := self._stream.proxy_words():
            return HostError(
                f"the proxy to the host ended: {words}", "try the same with ssh; see ProxyCommand and ProxyJump"
            )
        if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
            return HostError(f"no SSH algorithm in common: {quoted(str(error))}", "update the SSH server there")
        if _is_hang_up(error):
            return HostError(
                "the host closed the connection before the SSH handshake was done",
                "see sshd's log there: MaxStartups, a deny list, or too many failed logins",
            )
        return HostError(f"what answers does not speak SSH: {quoted(str(error))}", "check the address and the port")


class _UntimedPacketizer(Packetizer):  # type: ignore[misc]
    """paramiko times the handshake by a thread that outlives a failed one and holds up the end of the process."""

    def start_handshake(self, timeout: float) -> None:
        """No timer: the handshake is timed by `negotiate`."""


def _is_hang_up(error: Exception) -> bool:
    if isinstance(error, (EOFError, ConnectionError)):
        return True
    text = str(error)
    return text in ("Error reading SSH protocol banner", "Negotiation failed.") or "[Errno" in text


def check_host_key(key: HostKey, settings: SshSettings, known_hosts: KnownHosts, *, accept_new: bool) -> None:
    """HostError unless the key is known, or new and to be accepted; then it is added to known_hosts."""
    name = settings.key_name
    check = known_hosts.check(name, key)
    if check.status is KeyStatus.KNOWN:
        return
    if check.status is KeyStatus.UNKNOWN and accept_new:
        known_hosts.add(name, key, is_hashed=settings.hash_known_hosts)
        return
    shown = f"{key.kind} {key.fingerprint}"
    if check.status is KeyStatus.UNKNOWN:
        raise HostError(
            f"the host key of {name} is unknown: {shown}",
            "compare it with `ssh-keygen -lf` of the host's own /etc/ssh/ssh_host_*_key.pub, then use "
            "--accept-new-host-keys",
        )
    if check.status is KeyStatus.REVOKED:
        raise HostError(f"the host key of {name} is revoked by {check.place}: {shown}", "give the host a new key")
    raise HostError(
        f"the host key of {name} has changed: it is {shown} now, {check.place} holds another",
        "find out why (a new installation, or somebody in between?); then drop the old one: "
        f"ssh-keygen -f {(check.place or '').rpartition(':')[0]} -R '{name}'",
    )
