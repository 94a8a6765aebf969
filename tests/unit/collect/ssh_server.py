"""An SSH server in the test process: runs real commands, and misbehaves on demand. Needs no root and no sshd."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

WINDOW_BYTES = 256 * 1024


@dataclass(kw_only=True)
class Behaviour:
    """What the server does wrong; nothing by default."""

    is_silent: bool = False
    hangs_up: bool = False
    greeting: bytes = b""
    cut_after_bytes: int | None = None
    refuses_channels: bool = False
    refuses_commands: bool = False
    allowed_auths: str = "publickey"
    auth_delay_s: float = 0.0
    closes_without_eof: bool = False


@dataclass(kw_only=True)
class SshServer:
    """A server on a loopback port. `commands` are those it was asked to run, `logins` the keys that were offered."""

    host_key: paramiko.PKey
    authorized: paramiko.PKey
    more_host_keys: tuple[paramiko.PKey, ...] = ()
    behaviour: Behaviour = field(default_factory=Behaviour)
    commands: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stopped = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def known_hosts_line(self, key: paramiko.PKey | None = None) -> str:
        """The line of known_hosts that trusts this server's key, or another for the same name."""
        key = key or self.host_key
        return f"[127.0.0.1]:{self.port} {key.get_name()} {key.get_base64()}\n"

    def running(self) -> int:
        """How many of the commands have not ended."""
        return sum(process.poll() is None for process in self._processes)

    def close(self) -> None:
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        if self.behaviour.hangs_up:
            sock.close()
            return
        if self.behaviour.greeting:
            sock.sendall(self.behaviour.greeting)
        if self.behaviour.is_silent or self.behaviour.greeting:
            self._stopped.wait(60)
            return
        transport = paramiko.Transport(sock, default_window_size=WINDOW_BYTES)
        for key in (self.host_key, *self.more_host_keys):
            transport.add_server_key(key)
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            transport.start_server(server=_Session(self, sock))

    def run(self, command: str, channel: paramiko.Channel, sock: socket.socket) -> None:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._processes.append(process)
        pumps = [
            threading.Thread(target=target, args=args, daemon=True)
            for target, args in (
                (_pump_in, (channel, process.stdin)),
                (self._pump_out, (process.stdout, channel, sock)),
                (_pump_err, (process.stderr, channel)),
            )
        ]
        for pump in pumps:
            pump.start()
        status = process.wait()
        for pump in pumps[1:]:
            pump.join(10)
        for pipe in (process.stdout, process.stderr):
            pipe.close()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            if not self.behaviour.closes_without_eof:
                channel.shutdown_write()
            if status >= 0:
                channel.send_exit_status(status)
            channel.close()

    def _pump_out(self, stdout, channel: paramiko.Channel, sock: socket.socket) -> None:
        sent_bytes = 0
        limit = self.behaviour.cut_after_bytes
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            while data := stdout.read(8192):
                channel.sendall(data)
                sent_bytes += len(data)
                if limit is not None and sent_bytes >= limit:
                    sock.shutdown(socket.SHUT_RDWR)
                    return


def _pump_in(channel: paramiko.Channel, stdin) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        while data := channel.recv(32_768):
            while data:
                data = data[stdin.write(data) :]
    with contextlib.suppress(OSError):
        stdin.close()


def _pump_err(stderr, channel: paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        while data := stderr.read(8192):
            channel.sendall_stderr(data)


class _Session(paramiko.ServerInterface):
    def __init__(self, server: SshServer, sock: socket.socket) -> None:
        self._server = server
        self._sock = sock

    def get_allowed_auths(self, username: str) -> str:
        return self._server.behaviour.allowed_auths

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        threading.Event().wait(self._server.behaviour.auth_delay_s)
        self._server.logins.append(username)
        is_right = key.asbytes() == self._server.authorized.asbytes()
        return paramiko.AUTH_SUCCESSFUL if is_right else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if self._server.behaviour.refuses_channels:
            return paramiko.OPEN_FAILED_RESOURCE_SHORTAGE
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if self._server.behaviour.refuses_commands:
            return False
        text = command.decode()
        self._server.commands.append(text)
        threading.Thread(target=self._server.run, args=(text, channel, self._sock), daemon=True).start()
        return True


@dataclass(kw_only=True)
class ClientFiles:
    """An SSH configuration of its own: key, known_hosts and config in one folder."""

    folder: Path

    def __post_init__(self) -> None:
        self.key = paramiko.ECDSAKey.generate()
        self.identity = self.folder / "id_test"
        self.key.write_private_key_file(str(self.identity))
        self.known_hosts = self.folder / "known_hosts"
        self.config = self.folder / "config"
        self.write_config()

    def write_config(self, *lines: str) -> None:
        text = [
            *lines,
            "Host *",
            "User tester",
            f"IdentityFile {self.identity}",
            "IdentitiesOnly yes",
            f"UserKnownHostsFile {self.known_hosts}",
            "GlobalKnownHostsFile none",
        ]
        self.config.write_text("\n".join(text) + "\n")


@contextlib.contextmanager
def ssh_server(files: ClientFiles, behaviour: Behaviour | None = None) -> Iterator[SshServer]:
    """A server that lets the client's key in; its host key is not in known_hosts yet."""
    server = SshServer(host_key=paramiko.ECDSAKey.generate(), authorized=files.key, behaviour=behaviour or Behaviour())
    try:
        yield server
    finally:
        server.close()
