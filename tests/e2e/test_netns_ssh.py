"""SSH to real hosts, with a real sshd: each way in which a host fails is told in time, and nothing stays behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ncclprobe.collect.hosts import Host, read_hosts
from ncclprobe.collect.transport import HostError
from ncclprobe.collect.transport.ssh import SshTransport
from tests.e2e.netns import RealHost, RealHosts, missing_for_real_hosts, real_hosts, remove_stale, require_real_hosts

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).parents[2]

ALL_REDUCE = """
import os, socket, torch, torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
print(f"sum {int(ones)} on {socket.gethostname()}", flush=True)
dist.barrier()
if os.environ.get("STAY"):
    import time; time.sleep(600)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[RealHosts]:
    """Hosts that stay well; a test that harms one makes its own."""
    with real_hosts(3) as hosts:
        yield hosts


@pytest.fixture
def sick() -> Iterator[RealHosts]:
    with real_hosts(1) as hosts:
        yield hosts


def run(
    hosts: RealHosts, name: str, command: str, payload: bytes = b"", deadline_s: float = 20, **options: object
) -> tuple[bytes, int | None, str]:
    transport = SshTransport(config_path=hosts.ssh_config, **{"connect_timeout_s": 5, **options})
    process = transport.start(Host(name=name, address=name), command, payload, time.monotonic() + deadline_s)
    try:
        output = b"".join(iter(lambda: process.read(65_536), b""))
        return output, *process.finish()
    finally:
        process.close()


def error_of(hosts: RealHosts, name: str, command: str = "true", within_s: float = 8, **options: object) -> HostError:
    begin = time.monotonic()
    with pytest.raises(HostError) as caught:
        run(hosts, name, command, **options)
    assert time.monotonic() - begin < within_s
    assert caught.value.advice
    return caught.value


def is_soon_idle(host: RealHost) -> bool:
    end = time.monotonic() + 30
    while host.processes() and time.monotonic() < end:
        time.sleep(0.05)
    return host.processes() == []


def test_each_host_is_one_of_its_own(hosts: RealHosts) -> None:
    names = read_hosts(str(hosts.hosts_file), None)
    assert [host.name for host in names] == ["node0", "node1", "node2"]
    for host in names:
        output, status, errors = run(hosts, host.address, "hostname; echo $$ >/tmp/here; ls /proc | grep -c '^[0-9]'")
        assert output.split()[0].decode() == host.name
        assert int(output.split()[1]) < 20, "a host sees its own processes only"
        assert (status, errors) == (0, "")
    for host in hosts:
        assert host.tmp_files() == ["here"]
        host.run("rm /tmp/here")
        assert is_soon_idle(host)


def test_a_large_payload_goes_in_while_output_comes_out(hosts: RealHosts) -> None:
    payload = os.urandom(6_000_000)
    assert run(hosts, "node0", "head -c 6000000; echo done >&2", payload) == (payload, 0, "done\n")


def test_64_connections_at_once(hosts: RealHosts) -> None:
    transport = SshTransport(config_path=hosts.ssh_config)
    deadline = time.monotonic() + 60

    def one(number: int) -> bytes:
        host = Host(name="x", address=f"node{number % 3}")
        process = transport.start(host, f"head -c 200000 | wc -c; echo {number}", bytes(200_000), deadline)
        try:
            return b"".join(iter(lambda: process.read(65_536), b""))
        finally:
            process.close()

    with ThreadPoolExecutor(64) as pool:
        assert list(pool.map(one, range(64))) == [f"200000\n{number}\n".encode() for number in range(64)]
    assert all(is_soon_idle(host) for host in hosts)


def test_close_in_the_middle_ends_the_command_and_lets_it_clean_up(hosts: RealHosts) -> None:
    transport = SshTransport(config_path=hosts.ssh_config)
    command = "d=$(mktemp -d); trap 'rm -r $d' EXIT; echo ready; cat >/dev/null"
    process = transport.start(Host(name="node0", address="node0"), command, b"payload", time.monotonic() + 20)
    assert process.read(100) == b"ready\n"
    assert len(hosts[0].tmp_files()) == 1
    process.close()
    assert hosts[0].tmp_files() == []
    assert is_soon_idle(hosts[0])


def test_the_deadline_ends_the_command(hosts: RealHosts) -> None:
    assert "deadline" in str(error_of(hosts, "node0", "cat >/dev/null", deadline_s=1.5))
    assert is_soon_idle(hosts[0])


def test_a_wrong_key(hosts: RealHosts) -> None:
    error = error_of(hosts, "node0", identity=hosts.wrong_identity)
    assert "the host refuses the login as root" in str(error)
    assert str(hosts.wrong_identity) in str(error)


def test_an_unknown_host_key_is_refused_until_new_ones_are_accepted(hosts: RealHosts) -> None:
    known = hosts.known_hosts.read_text()
    try:
        hosts.known_hosts.write_text("")
        error = error_of(hosts, "node0")
        fingerprint = hosts[0].run(f"ssh-keygen -lf {hosts[0].folder}/host_key.pub").stdout.split()[1]
        assert f"the host key of {hosts[0].address} is unknown: ssh-ed25519 {fingerprint}" in str(error)
        assert run(hosts, "node0", "echo in", accept_new_host_keys=True)[0] == b"in\n"
        assert hosts.known_hosts.read_text() in known
        assert run(hosts, "node0", "echo in")[0] == b"in\n"
    finally:
        hosts.known_hosts.write_text(known)


def test_a_changed_host_key_is_refused_always(hosts: RealHosts) -> None:
    known = hosts.known_hosts.read_text()
    try:
        hosts.known_hosts.write_text(
            known.replace(hosts[0].address, "swap").replace(hosts[1].address, hosts[0].address)
        )
        assert "has changed" in str(error_of(hosts, "node0", accept_new_host_keys=True))
    finally:
        hosts.known_hosts.write_text(known)


def test_a_jump_over_another_host(hosts: RealHosts) -> None:
    config = hosts.ssh_config.read_text()
    try:
        hosts.ssh_config.write_text("Host node2\n  ProxyJump node1\n" + config)
        assert run(hosts, "node2", "hostname; echo $SSH_CONNECTION")[0].split()[:2] == [
            b"node2",
            hosts[1].address.encode(),
        ]
        hosts.ssh_config.write_text("Host node2\n  ProxyJump nowhere\n" + config)
        assert "the proxy to the host ended: " in str(error_of(hosts, "node2"))
    finally:
        hosts.ssh_config.write_text(config)


def test_a_host_whose_link_is_down(sick: RealHosts) -> None:
    sick[0].link_down()
    error = error_of(sick, "node0", connect_timeout_s=2)
    assert "down" in str(error)
    assert sick[0].address in str(error)
    sick[0].link_up()
    assert run(sick, "node0", "echo back")[0] == b"back\n"


def test_a_link_that_breaks_in_the_middle_ends_at_the_deadline(sick: RealHosts) -> None:
    transport = SshTransport(config_path=sick.ssh_config)
    begin = time.monotonic()
    process = transport.start(Host(name="node0", address="node0"), "echo ready; cat >&2", bytes(8_000_000), begin + 3)
    assert process.read(100) == b"ready\n"
    sick[0].link_down()
    with pytest.raises(HostError, match="deadline"):
        process.read(100)
    process.close()
    assert time.monotonic() - begin < 6


def test_a_host_that_accepts_and_never_answers(sick: RealHosts) -> None:
    sick[0].stop_sshd_answering()
    error = error_of(sick, "node0", connect_timeout_s=1.5, within_s=4)
    assert "accepts the connection and never speaks SSH" in str(error)
    sick[0].let_sshd_answer()
    assert run(sick, "node0", "echo back")[0] == b"back\n"


def test_a_connection_that_is_cut_in_the_middle(sick: RealHosts) -> None:
    sick[0].cut_after(100_000)
    assert run(sick, "node0", "echo short")[0] == b"short\n"
    error = error_of(sick, "node0", "head -c 3000000 /dev/zero; cat")
    assert "the connection was lost after " in str(error)
    assert is_soon_idle(sick[0])


def test_no_sshd(sick: RealHosts) -> None:
    sick[0].run(f"kill $(cat {sick[0].folder}/sshd.pid)")
    time.sleep(0.2)
    assert "refuses the connection" in str(error_of(sick, "node0"))


def test_python_hides_on_one_host_alone(hosts: RealHosts, sick: RealHosts) -> None:
    sick[0].hide_python()
    command = f"python3 -c 'print(1)'; /usr/bin/python3 -c 'print(1)'; {sys.executable} -c 'print(1)'"
    assert run(sick, "node0", command)[:2] == (b"", 1)
    assert b"1\n" in run(hosts, "node0", command)[0]


def test_a_torchrun_job_over_all_hosts(hosts: RealHosts) -> None:
    program = hosts.shared / "all_reduce.py"
    program.write_text(ALL_REDUCE)
    job = hosts.torchrun(program, nproc=2, env={"STAY": "1"})
    try:
        for host in hosts:
            job.wait_for(f"sum 6 on {host.name}", count=2)
            assert sum("all_reduce.py" in command for command in host.processes()) >= 3
    finally:
        job.stop()
    assert all(host.processes() == [] for host in hosts)


def test_nothing_is_left_behind() -> None:
    require_real_hosts()
    before = traces(os.getpid())
    with real_hosts(2) as hosts:
        pids = [host.init_pid for host in hosts]
        hosts[0].run("setsid sleep 300 >/dev/null 2>&1 &")
        hosts[0].hide_python()
        hosts[1].link_down()
        assert len(traces(os.getpid())) > len(before) + 4
    assert traces(os.getpid()) == before
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_nothing_is_left_behind_by_a_run_that_is_killed() -> None:
    require_real_hosts()
    program = (
        "import time; from tests.e2e.netns import real_hosts\n"
        "with real_hosts(1) as hosts: print(hosts[0].init_pid, flush=True); time.sleep(60)"
    )
    killed = subprocess.Popen(
        [sys.executable, "-c", program], cwd=REPOSITORY, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert killed.stdout is not None
        init_pid = int(killed.stdout.readline())
        assert traces(killed.pid)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate(timeout=60)
    end = time.monotonic() + 30
    while Path(f"/proc/{init_pid}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{init_pid}").exists()
    remove_stale()
    assert traces(killed.pid) == set()


def traces(pid: int) -> set[str]:
    """What the hosts of a test process leave on this machine while they live: namespaces, links, folders, mounts."""
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, timeout=60, check=True).stdout
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=60, check=True).stdout
    mounts = Path("/proc/self/mountinfo").read_text()
    folders = [path.name for path in Path("/var/tmp").iterdir()]
    lines = [*names.splitlines(), *mounts.splitlines(), *folders, *links.splitlines()]
    return {line for line in lines if f"ncclprobe-{pid}-" in line or line.startswith(f"ncp{pid}s")}


def test_without_root_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert missing_for_real_hosts() == "network namespaces need root"
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no real hosts: network namespaces need root"):
        require_real_hosts()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needed in CI"):
        require_real_hosts()
