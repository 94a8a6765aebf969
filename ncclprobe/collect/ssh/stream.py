"""The bytes to and from a host's SSH server: a TCP connection, or a proxy command of the user's configuration.

In: `SshSettings`. Out: a `Stream`: a connected socket, and the proxy behind it if there is one.
"""

import contextlib
import errno
import os
import shlex
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncclprobe.collect.ssh.settings import SshSettings
from ncclprobe.collect.transport import HostError, SilentHostError
from ncclprobe.collect.transport.quoting import quoted
from ncclprobe.collect.transport.tail import Tail

# Unacknowledged bytes older than this mean that the host or the network is gone.
ACKNOWLEDGE_TIMEOUT_MS = 30_000
PROXY_EXIT_WAIT_S = 1.0
# ssh gives up on a jump host a little before we give up on ssh, so that its own words are heard.
JUMP_SHARE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A running proxy command, in a session of its own, and the end of what it says on standard error."""

    process: "subprocess.Popen[bytes]"
    stderr: Tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A connected socket. `cut` may be called from any thread, ends all waits on it, and never blocks for long."""

    sock: socket.socket
    proxy: Proxy | None = None

    def cut(self) -> None:
        """Ends the connection and the proxy."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        if self.proxy is not None and self.proxy.process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(self.proxy.process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.proxy.process.wait(PROXY_EXIT_WAIT_S)

    def close(self) -> None:
        """Cuts it, and lets go of the socket."""
        self.cut()
        self.sock.close()

    def proxy_words(self) -> str:
        """The last line of the standard error of a proxy that has ended; nothing while it runs."""
        if self.proxy is None:
            return ""
        try:
            self.proxy.process.wait(PROXY_EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            return ""
        lines = self.proxy.stderr.text(PROXY_EXIT_WAIT_S).split("\n")
        words = [line.strip() for line in lines if line.strip()]
        return quoted(words[-1]) if words else ""


def open_stream(settings: SshSettings, config_path: Path | None, wait_s: float, *, accept_new: bool) -> Stream:
    """A stream to the host's SSH server, made within `wait_s` per address. HostError says why there is none."""
    if settings.proxy is not None:
        return _proxied(["/bin/sh", "-c", f"exec {settings.proxy}"])
    if settings.proxy_jump is not None:
        return _proxied(jump_command(settings, settings.proxy_jump, config_path, wait_s, accept_new=accept_new))
    return Stream(sock=_connect(settings, wait_s))


def _connect(settings: SshSettings, wait_s: float) -> socket.socket:
    place = f"{settings.hostname} port {settings.port}"
    try:
        addresses = socket.getaddrinfo(settings.hostname, settings.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise HostError(
            f"the name {settings.hostname} does not resolve: {reason}",
            "correct the name in the hosts file, or give its address as HostName in ~/.ssh/config",
        ) from None
    failure: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        try:
            return _connect_to(socket.socket(family, kind, protocol), address, wait_s)
        except OSError as error:
            # Of several addresses, one that refuses tells most: the host is up.
            failure = failure if isinstance(failure, ConnectionRefusedError) else error
    raise _connect_error(place, failure or OSError(errno.EHOSTUNREACH, "no address"), wait_s)


def _connect_to(sock: socket.socket, address: Any, wait_s: float) -> socket.socket:
    try:
        sock.settimeout(wait_s)
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    _notice_silence(sock)
    return sock


def _connect_error(place: str, failure: OSError, wait_s: float) -> HostError:
    if isinstance(failure, ConnectionRefusedError):
        return HostError(f"{place} refuses the connection", "start sshd there, or correct the port")
    if isinstance(failure, TimeoutError):
        return SilentHostError(
            f"{place} did not answer within {wait_s:.1f} s: the host is down, or a firewall drops the packets",
            "look at the host's console or its management controller; check the address and the firewall",
        )
    if failure.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN):
        return SilentHostError(
            f"no route to {place}: the host or its network is down",
            "look at the host's console or its management controller; check the address and the link",
        )
    return HostError(f"no connection to {place}: {failure.strerror or failure}", "check the address and the port")


def _notice_silence(sock: socket.socket) -> None:
    """Makes a dead peer an error after a while; by itself TCP would try for a quarter of an hour."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, ACKNOWLEDGE_TIMEOUT_MS)


def jump_command(
    settings: SshSettings, jumps: str, config_path: Path | None, wait_s: float, *, accept_new: bool
) -> list[str]:
    """An ssh that goes by way of the hosts in ProxyJump, asks no question, and carries the bytes."""
    *before, last = [jump.strip() for jump in jumps.split(",")]
    return [
        "ssh",
        *(["-F", str(config_path)] if config_path is not None else []),
        *(["-J", ",".join(before)] if before else []),
        *("-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, int(wait_s * JUMP_SHARE))}"),
        *("-o", f"StrictHostKeyChecking={'accept-new' if accept_new else 'yes'}"),
        *("-W", f"[{settings.hostname}]:{settings.port}"),
        *("--", last if last.startswith("ssh://") else f"ssh://{last}"),
    ]


def _proxied(command: list[str]) -> Stream:
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(
            command,
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "SSH_ASKPASS_REQUIRE": "never"},
            start_new_session=True,  # no terminal to ask for a password on
        )
    except OSError as error:
        ours.close()
        raise HostError(
            f"the proxy command does not start: {quoted(shlex.join(command))}: {error.strerror}",
            "install what ProxyCommand or ProxyJump in the SSH configuration needs",
        ) from None
    finally:
        theirs.close()
    if process.stderr is None:
        raise ValueError("the proxy must have a pipe for its errors")
    return Stream(sock=ours, proxy=Proxy(process=process, stderr=Tail(process.stderr.read, process.stderr.close)))
