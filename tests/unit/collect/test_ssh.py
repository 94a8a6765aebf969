"""Commands over SSH, against a server in this process: what works, and each way in which it does not."""

import logging
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from ncclprobe.collect.hosts import Host
from ncclprobe.collect.transport import HostError, RemoteProcess
from ncclprobe.collect.transport.ssh import SshTransport
from ncclprobe.model.errors import UsageError
from tests.unit.collect.ssh_server import Behaviour, ClientFiles, SshServer, ssh_server


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientFiles:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return ClientFiles(folder=tmp_path)


@pytest.fixture
def server(files: ClientFiles) -> Iterator[SshServer]:
    with ssh_server(files) as server:
        files.known_hosts.write_text(server.known_hosts_line())
        yield server


def start(
    files: ClientFiles,
    server: SshServer,
    command: str = "echo out",
    payload: bytes = b"",
    deadline_s: float = 20,
    **options: object,
) -> RemoteProcess:
    transport = SshTransport(config_path=files.config, **{"connect_timeout_s": 5, **options})
    host = Host(name="it", address="127.0.0.1", port=server.port)
    return transport.start(host, command, payload, time.monotonic() + deadline_s)


def read_all(process: RemoteProcess) -> bytes:
    return b"".join(iter(lambda: process.read(65_536), b""))


def run(files: ClientFiles, server: SshServer, *args: object, **options: object) -> tuple[bytes, int | None, str]:
    process = start(files, server, *args, **options)
    try:
        return read_all(process), *process.finish()
    finally:
        process.close()


def error_of(files: ClientFiles, server: SshServer, *args: object, **options: object) -> HostError:
    begin = time.monotonic()
    with pytest.raises(HostError) as caught:
        run(files, server, *args, **options)
    assert time.monotonic() - begin < 8
    assert "\n" not in str(caught.value)
    assert caught.value.advice
    return caught.value


def is_soon(predicate: object) -> bool:
    end = time.monotonic() + 5
    while not predicate() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(predicate())


def test_output_status_and_errors(files: ClientFiles, server: SshServer) -> None:
    assert run(files, server, "echo out; echo err >&2; exit 3") == (b"out\n", 3, "err\n")


def test_the_command_is_run_by_sh_whatever_the_login_shell(files: ClientFiles, server: SshServer) -> None:
    assert run(files, server, "x='a b'; echo \"$x\"  'it'\\''s'")[0] == b"a b it's\n"
    assert server.commands[0].startswith("exec /bin/sh -c ")


def test_a_large_payload_goes_in_while_output_comes_out(files: ClientFiles, server: SshServer) -> None:
    payload = os.urandom(6_000_000)
    assert run(files, server, "head -c 6000000; echo noise >&2", payload) == (payload, 0, "noise\n")


def test_standard_input_stays_open_until_close(files: ClientFiles, server: SshServer, tmp_path: Path) -> None:
    process = start(files, server, f"echo ready; cat >/dev/null; touch {tmp_path}/end", b"payload")
    assert process.read(100) == b"ready\n"
    time.sleep(0.2)
    assert not (tmp_path / "end").exists()
    process.close()
    assert (tmp_path / "end").exists()


def test_only_the_end_of_a_flood_of_errors_is_kept(files: ClientFiles, server: SshServer) -> None:
    out, status, errors = run(files, server, "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo last >&2; echo done")
    assert (out, status) == (b"done\n", 0)
    assert errors.endswith("xlast\n")
    assert len(errors) == 4096


def test_a_command_that_a_signal_ends_has_no_known_status(files: ClientFiles, server: SshServer) -> None:
    assert run(files, server, "kill -9 $$") == (b"", None, "")


def test_the_deadline_while_reading(files: ClientFiles, server: SshServer) -> None:
    process = start(files, server, "echo early; sleep 60", deadline_s=1)
    assert process.read(100) == b"early\n"
    begin = time.monotonic()
    for call in (lambda: process.read(100), process.finish):
        with pytest.raises(HostError, match="deadline"):
            call()
    process.close()
    assert time.monotonic() - begin < 3


def test_the_deadline_while_the_command_takes_no_payload(files: ClientFiles, server: SshServer) -> None:
    error = error_of(files, server, "sleep 60", bytes(6_000_000), deadline_s=1)
    assert "deadline" in str(error)


def test_the_deadline_has_passed_already(files: ClientFiles, server: SshServer) -> None:
    assert "deadline" in str(error_of(files, server, deadline_s=-1))
    assert server.logins == []


def test_close_is_quick_and_leaves_no_thread(files: ClientFiles, server: SshServer) -> None:
    before = {thread for thread in threading.enumerate() if "ssh" in thread.name or "stderr" in thread.name}
    process = start(files, server, "yes")
    process.read(10)
    begin = time.monotonic()
    process.close()
    process.close()
    assert time.monotonic() - begin < 3

    def ours() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if "ssh" in t.name or "stderr" in t.name} - before

    assert is_soon(lambda: not ours())
    with pytest.raises(HostError, match="closed"):
        read_all(process)


def test_many_at_once(files: ClientFiles, server: SshServer) -> None:
    def one(number: int) -> bytes:
        return run(files, server, f"echo {number}; head -c 100000 | wc -c", bytes(100_000))[0]

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(one, range(24)))
    assert answers == [f"{number}\n100000\n".encode() for number in range(24)]


def test_the_connection_is_cut_in_the_middle(files: ClientFiles) -> None:
    with ssh_server(files, Behaviour(cut_after_bytes=100_000)) as server:
        files.known_hosts.write_text(server.known_hosts_line())
        error = error_of(files, server, "head -c 3000000 /dev/zero")
    assert "the connection was lost after " in str(error)
    assert "after 0 bytes" not in str(error)


def test_an_end_without_an_end_of_file_is_an_end(files: ClientFiles) -> None:
    with ssh_server(files, Behaviour(closes_without_eof=True)) as server:
        files.known_hosts.write_text(server.known_hosts_line())
        assert run(files, server) == (b"out\n", 0, "")


def test_an_unknown_host_key_is_refused_and_nothing_is_offered_to_it(files: ClientFiles, server: SshServer) -> None:
    files.known_hosts.write_text("")
    error = error_of(files, server)
    assert f"the host key of [127.0.0.1]:{server.port} is unknown: ecdsa-sha2-nistp256 SHA256:" in str(error)
    assert "--accept-new-host-keys" in error.advice
    assert server.logins == []
    assert files.known_hosts.read_text() == ""


def test_a_lax_configuration_does_not_weaken_the_check(files: ClientFiles, server: SshServer) -> None:
    files.known_hosts.write_text("")
    files.write_config("StrictHostKeyChecking no")
    assert "is unknown" in str(error_of(files, server))


def test_a_new_host_key_is_accepted_once_and_written_down(files: ClientFiles, server: SshServer) -> None:
    files.known_hosts.unlink()
    assert run(files, server, accept_new_host_keys=True)[0] == b"out\n"
    assert files.known_hosts.read_text() == server.known_hosts_line()
    assert run(files, server)[0] == b"out\n"


def test_a_new_host_key_is_written_with_a_hashed_name_where_names_are_hashed(
    files: ClientFiles, server: SshServer
) -> None:
    files.known_hosts.unlink()
    files.write_config("HashKnownHosts yes")
    run(files, server, accept_new_host_keys=True)
    assert files.known_hosts.read_text().startswith("|1|")
    assert run(files, server)[0] == b"out\n"


@pytest.mark.parametrize("accept", [False, True])
def test_a_changed_host_key_is_refused_always(files: ClientFiles, server: SshServer, accept: bool) -> None:
    text = server.known_hosts_line(paramiko.ECDSAKey.generate())
    files.known_hosts.write_text(text)
    error = error_of(files, server, accept_new_host_keys=accept)
    assert "has changed" in str(error)
    assert f"{files.known_hosts}:1" in str(error)
    assert f"ssh-keygen -f {files.known_hosts} -R '[127.0.0.1]:{server.port}'" in error.advice
    assert server.logins == []
    assert files.known_hosts.read_text() == text


def test_the_host_is_asked_for_the_key_that_is_known(files: ClientFiles, server: SshServer) -> None:
    rsa = paramiko.RSAKey.generate(2048)
    server.more_host_keys = (rsa,)
    files.known_hosts.write_text(server.known_hosts_line(rsa))
    assert run(files, server)[0] == b"out\n"


def test_a_wrong_key_is_told_with_what_was_tried(files: ClientFiles, server: SshServer, tmp_path: Path) -> None:
    other = tmp_path / "other"
    paramiko.ECDSAKey.generate().write_private_key_file(str(other))
    error = error_of(files, server, identity=other)
    assert "the host refuses the login as tester" in str(error)
    assert f"tried {other} (SHA256:" in str(error)
    assert "authorized_keys" in error.advice


def test_keys_that_cannot_be_used_are_told(files: ClientFiles, server: SshServer, tmp_path: Path) -> None:
    locked, broken = tmp_path / "locked", tmp_path / "broken"
    paramiko.ECDSAKey.generate().write_private_key_file(str(locked), password="secret")
    broken.write_text("no key")
    names = (locked, broken, tmp_path / "missing")
    files.write_config("Host 127.0.0.1", *(f"IdentityFile {name}" for name in names))
    server.authorized = server.host_key
    text = str(error_of(files, server))
    assert f"{locked} (has a passphrase: ssh-add it first)" in text
    assert f"{broken} (not a key that can be read)" in text
    assert f"{tmp_path}/missing (no such file)" in text


def test_the_agents_key_lets_us_in(files: ClientFiles, server: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh_agent = shutil.which("ssh-agent")
    assert ssh_agent is not None, "install openssh-client"
    path = files.folder / "agent.sock"
    agent = subprocess.Popen([ssh_agent, "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        assert is_soon(path.exists)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        subprocess.run(["ssh-add", "-q", str(files.identity)], check=True, timeout=10)
        files.identity.unlink()
        files.write_config("Host 127.0.0.1", f"IdentityFile {files.folder}/missing", "IdentitiesOnly no")
        assert run(files, server)[0] == b"out\n"
    finally:
        agent.terminate()
        agent.wait(5)


@pytest.mark.parametrize(("answer", "why"), [(None, "does not answer"), (b"\0\0\0\1\5", "makes no sense")])
def test_a_sick_agent_does_not_stand_in_the_way(
    files: ClientFiles, server: SshServer, monkeypatch: pytest.MonkeyPatch, answer: bytes | None, why: str
) -> None:
    monkeypatch.setattr("ncclprobe.collect.ssh.login.AGENT_WAIT_S", 0.3)
    path = files.folder / "agent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        if answer is not None:
            threading.Thread(target=lambda: [listener.accept()[0].sendall(answer) for _ in "12"], daemon=True).start()
        assert run(files, server)[0] == b"out\n"
        server.authorized = server.host_key
        assert f"skipped the SSH agent (it{' ' if answer is None else 's answer '}{why})" in str(
            error_of(files, server)
        )


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (Behaviour(is_silent=True), "accepts the connection and never speaks SSH"),
        (Behaviour(greeting=b"SSH-2.0-stuck\r\n"), "stops in the middle of the SSH handshake"),
        (Behaviour(greeting=b"\xff\xff\r\n"), "does not speak SSH"),
        (Behaviour(greeting=b"SSH-1.0-old\r\n"), "no SSH algorithm in common"),
        (Behaviour(hangs_up=True), "closed the connection before the SSH handshake was done"),
        (Behaviour(allowed_auths="password,keyboard-interactive"), "takes no keys from tester, only: password, key"),
        (Behaviour(auth_delay_s=3), "did not answer the login as tester in time"),
        (Behaviour(refuses_channels=True), "lets us in and runs no command: Resource shortage"),
        (Behaviour(refuses_commands=True), "lets us in and runs no command: it refuses the request"),
    ],
)
def test_what_a_sick_host_does_is_told(files: ClientFiles, behaviour: Behaviour, expected: str) -> None:
    with ssh_server(files, behaviour) as server:
        files.known_hosts.write_text(server.known_hosts_line())
        assert expected in str(error_of(files, server, connect_timeout_s=1))


def test_the_words_about_a_silent_host_come_before_the_deadline(files: ClientFiles) -> None:
    with ssh_server(files, Behaviour(is_silent=True)) as server:
        begin = time.monotonic()
        assert "never speaks SSH" in str(error_of(files, server, deadline_s=1.5, connect_timeout_s=30))
        assert time.monotonic() - begin < 1.7


def test_a_closed_port(files: ClientFiles, server: SshServer) -> None:
    server.close()
    error = error_of(files, server)
    assert f"127.0.0.1 port {server.port} refuses the connection" in str(error)


def test_a_name_that_does_not_resolve(files: ClientFiles, server: SshServer) -> None:
    files.write_config("HostName no-such-host.invalid")
    assert "the name no-such-host.invalid does not resolve" in str(error_of(files, server))


def test_a_name_server_that_never_answers_does_not_outlast_the_deadline(
    files: ClientFiles, server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(30))
    begin = time.monotonic()
    assert "deadline" in str(error_of(files, server, deadline_s=0.5))
    assert time.monotonic() - begin < 2
    over.set()


def test_no_route(files: ClientFiles, server: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: socket.socket, address: object) -> None:
        raise OSError(113, "No route to host")

    monkeypatch.setattr(socket.socket, "connect", fail)
    assert "no route to 127.0.0.1 port" in str(error_of(files, server))


def test_a_proxy_command_carries_the_bytes_and_ends_with_us(files: ClientFiles, server: SshServer) -> None:
    relay = files.folder / "relay.py"
    relay.write_text(
        "import os, socket, sys, threading\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "open(sys.argv[3], 'w').write(str(os.getpid()))\n"
        "def send():\n"
        "    for data in iter(lambda: os.read(0, 65536), b''): s.sendall(data)\n"
        "threading.Thread(target=send, daemon=True).start()\n"
        "for data in iter(lambda: s.recv(65536), b''): os.write(1, data)\n"
    )
    pid_file = files.folder / "pid"
    files.write_config(f"ProxyCommand python3 {relay} %h %p {pid_file}")
    payload = os.urandom(1_000_000)
    assert run(files, server, "head -c 1000000", payload)[0] == payload
    assert not Path(f"/proc/{pid_file.read_text()}").exists()


def test_a_proxy_that_fails_is_quoted(files: ClientFiles, server: SshServer) -> None:
    files.write_config("ProxyCommand sh -c 'echo the bastion is closed >&2; exit 1'")
    assert "the proxy to the host ended: the bastion is closed" in str(error_of(files, server))


def test_a_missing_configuration_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        SshTransport(config_path=tmp_path / "missing")


def test_paramiko_says_nothing_on_standard_error(files: ClientFiles, capfd: pytest.CaptureFixture[str]) -> None:
    with ssh_server(files, Behaviour(hangs_up=True)) as server:
        error_of(files, server)
    assert capfd.readouterr().err == ""
    assert not logging.getLogger("paramiko").propagate


def test_paramiko_is_not_imported_with_the_package() -> None:
    code = "import sys, ncclprobe.collect.transport.local, ncclprobe.collect.hosts; print('paramiko' in sys.modules)"
    answer = subprocess.run([os.sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert answer.stdout == "False\n"
