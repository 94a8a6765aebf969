"""Runs commands on hosts over SSH, with the user's own SSH configuration, keys, agent and known hosts.

In: a host, a command and the bytes for its standard input. Out: a `RemoteProcess`, or a `HostError` that says what
stands in the way. Imports paramiko: import this module only where it is used.
"""

import logging
import threading
from pathlib import Path

from ncclprobe.collect.hosts import Host
from ncclprobe.collect.ssh.connection import Connection, check_host_key, step_s
from ncclprobe.collect.ssh.known_hosts import KnownHosts
from ncclprobe.collect.ssh.login import log_in
from ncclprobe.collect.ssh.process import SshProcess, start_process
from ncclprobe.collect.ssh.settings import SshConfig, SshSettings
from ncclprobe.collect.ssh.stream import open_stream
from ncclprobe.collect.transport import HostError, RemoteProcess
from ncclprobe.collect.transport.deadline import call_until
from ncclprobe.collect.transport.quoting import quoted


class SshTransport:
    """Starts commands on hosts over SSH; safe to use from many threads at once.

    An unknown host key is refused, or with `accept_new_host_keys` added to known_hosts; a changed one is always
    refused. `config_path` stands in for the user's and the system's SSH configuration. `identity` is the one private
    key to use. No step of connecting takes longer than `connect_timeout_s`. Nothing ever asks for a password.
    """

    def __init__(
        self,
        accept_new_host_keys: bool = False,
        config_path: Path | None = None,
        connect_timeout_s: float = 10,
        identity: Path | None = None,
    ) -> None:
        """UsageError when the SSH configuration cannot be read."""
        _silence_paramiko()
        self._accept_new_host_keys = accept_new_host_keys
        self._connect_timeout_s = connect_timeout_s
        self._config = SshConfig(config_path, identity)
        self._known_hosts: dict[tuple[tuple[Path, ...], tuple[Path, ...]], KnownHosts] = {}
        self._lock = threading.Lock()

    def start(self, host: Host, command: str, payload: bytes, deadline: float) -> RemoteProcess:
        """See `Transport.start`."""
        return call_until(deadline, lambda: self._start(host, command, payload, deadline), SshProcess.close)

    def _start(self, host: Host, command: str, payload: bytes, deadline: float) -> SshProcess:
        settings = self._config.settings(host)
        wait_s = step_s(deadline, self._connect_timeout_s)
        stream = open_stream(settings, self._config.path, wait_s, accept_new=self._accept_new_host_keys)
        try:
            connection = Connection(stream, deadline)
        except HostError:
            stream.close()
            raise
        try:
            return self._run(connection, settings, command, payload)
        except HostError:
            connection.close()
            raise
        except Exception as error:  # noqa: BLE001 - what a hostile server makes paramiko raise is of any kind
            connection.close()
            raise HostError(
                f"SSH to the host fails: {type(error).__name__}: {quoted(str(error))}", "try the same with ssh -v"
            ) from None

    def _run(self, connection: Connection, settings: SshSettings, command: str, payload: bytes) -> SshProcess:
        known_hosts = self._known_hosts_for(settings)
        limit_s, deadline = self._connect_timeout_s, connection.deadline
        key = connection.negotiate(step_s(deadline, limit_s), known_hosts.kinds(settings.key_name))
        check_host_key(key, settings, known_hosts, accept_new=self._accept_new_host_keys)
        connection.transport.auth_timeout = step_s(deadline, limit_s)
        log_in(connection.transport, settings)
        return start_process(connection, command, payload, step_s(deadline, limit_s))

    def _known_hosts_for(self, settings: SshSettings) -> KnownHosts:
        files = (settings.known_hosts, settings.system_known_hosts)
        with self._lock:
            if files not in self._known_hosts:
                self._known_hosts[files] = KnownHosts(*files)
            return self._known_hosts[files]


def _silence_paramiko() -> None:
    """Its errors come back as exceptions; on standard error they would only stand in the way."""
    logger = logging.getLogger("paramiko")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
