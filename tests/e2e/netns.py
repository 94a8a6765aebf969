"""Real hosts on this machine: network namespaces on a bridge, each with its own sshd, host name, processes and /tmp.

In: how many. Out: `RealHosts`, and the SSH files of a controller that may log in on them. Needs root, iproute2,
util-linux and openssh-server. Everything is removed at the end, and what a killed run left behind at the next start.

A host shares the file system of this machine but for `/tmp`, `/run`, `/var/log`, `/dev/shm` and the home folder of who
logs in, which are its own and empty. Programs for the hosts must not lie in `/tmp`: `RealHosts.shared` is a folder that
all of them see. A host dies with the thread that made it.
"""

import contextlib
import ipaddress
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.e2e.netns_commands import check, ip, start, wait_until
from tests.e2e.netns_host import NETNS_FOLDER, NIC, SSHD, RealHost
from tests.e2e.netns_job import Job, start_job

STALE_NAME = re.compile(r"ncclprobe-(\d+)-\d+-")
WORK_FOLDER = Path("/var/tmp")  # not /tmp: a host has one of its own

# Arguments: host name, folder. PID 1 of the host; it reaps what is orphaned.
INIT = """
set -e
hostname "$1"
mount --bind "$2/tmp" /tmp
mount -t tmpfs -o mode=755 run /run
mkdir /run/sshd
mount -t tmpfs -o mode=755 log /var/log
mount -t tmpfs -o mode=1777 shm /dev/shm
mount --bind "$2/hosts" /etc/hosts
if [ -e "$2/shadow" ]; then mount --bind "$2/shadow" /etc/shadow; fi
"$3" -f "$2/sshd_config" -E "$2/sshd.log"
while :; do sleep 100000 & wait $!; done
"""

SSHD_CONFIG = """
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
PermitUserRC no
PrintMotd no
PrintLastLog no
SetEnv HOME={folder}/home
MaxStartups 200
MaxSessions 50
"""

_serial = itertools.count()


def missing_for_real_hosts() -> str | None:
    """What stands in the way of real hosts here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    tools = ("ip", "unshare", "nsenter", "setpriv", "mount", "ssh-keygen", "timeout")
    if Path(sys.prefix).is_relative_to("/tmp"):
        return "Python lies in /tmp, which every host hides: make VENV=/var/tmp/ncclprobe-venv test"
    absent = [tool for tool in (*tools, SSHD) if shutil.which(tool) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (iproute2, util-linux, openssh-server)"
    probe = ["unshare", "--net", "--uts", "--pid", "--mount", "--fork", "--mount-proc", "true"]
    answer = subprocess.run(probe, capture_output=True, text=True, timeout=20)
    return None if answer.returncode == 0 else f"namespaces are not allowed: {answer.stderr.strip()}"


def require_real_hosts() -> None:
    """Skips the test where real hosts cannot be made; with CI=true it fails instead."""
    reason = missing_for_real_hosts()
    if reason is not None and os.environ.get("CI") == "true":
        pytest.fail(f"real hosts are needed in CI: {reason}")
    if reason is not None:
        pytest.skip(f"no real hosts: {reason}")


@dataclass(kw_only=True)
class RealHosts(Sequence[RealHost]):
    """Some hosts, and a controller's files: `home` with `.ssh/config`, key and known_hosts, and a hosts file.

    `env` makes a program use that home. `wrong_identity` is a key that no host lets in. `shared` is seen by all hosts.
    """

    hosts: list[RealHost]
    home: Path
    shared: Path
    jobs: list[Job] = field(default_factory=list)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.hosts[index]

    def __len__(self) -> int:
        return len(self.hosts)

    @property
    def ssh_config(self) -> Path:
        return self.home / ".ssh/config"

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh/known_hosts"

    @property
    def identity(self) -> Path:
        return self.home / ".ssh/id_ed25519"

    @property
    def wrong_identity(self) -> Path:
        return self.home / ".ssh/wrong"

    @property
    def hosts_file(self) -> Path:
        return self.home / "hosts.txt"

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.home), "SSH_AUTH_SOCK": ""}

    def torchrun(
        self,
        program: Path,
        *arguments: str,
        nproc: int = 2,
        options: Sequence[str] = (),
        env: dict[str, str] | None = None,
    ) -> Job:
        """Starts `program` on all hosts, `nproc` ranks on each, with rendezvous on the first one; see `start_job`."""
        mark = f"{self.shared.parent.name}-job{len(self.jobs)}"
        command = [*options, str(program), *arguments]
        self.jobs.append(start_job(self.hosts, self.shared, mark, command, nproc=nproc, env=env or {}))
        return self.jobs[-1]


@contextlib.contextmanager
def real_hosts(count: int) -> Iterator[RealHosts]:
    """Makes hosts `node0`, `node1`, ...; skips where that is not possible. All is removed at the end."""
    require_real_hosts()
    remove_stale()
    prefix = f"ncclprobe-{os.getpid()}-{next(_serial)}-"
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=WORK_FOLDER))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        jobs: list[Job] = []
        stack.callback(lambda: [launcher.wait(10) for job in jobs for launcher in job.launchers])
        folder.chmod(0o755)
        network = _free_network()
        addresses = [str(network[10 + index]) for index in range(count)]
        home = _write_controller(folder / "controller", addresses)
        _make_switch(stack, prefix, str(network[1]))
        hosts = [
            _make_host(stack, prefix, folder, index, addresses, home / ".ssh/id_ed25519.pub") for index in range(count)
        ]
        for host in hosts:
            wait_until(lambda host=host: _is_open(host.address), f"sshd of {host.name} listens")
        _write_known_hosts(home, hosts)
        (folder / "shared").mkdir()
        yield RealHosts(hosts=hosts, home=home, shared=folder / "shared", jobs=jobs)


def remove_stale() -> None:
    """Removes what runs that were killed have left behind."""
    names = [path.name for path in NETNS_FOLDER.glob("ncclprobe-*")] if NETNS_FOLDER.exists() else []
    for name in filter(_is_stale, names):
        _remove_netns(name)
    for path in WORK_FOLDER.glob("ncclprobe-*"):
        if _is_stale(path.name):
            shutil.rmtree(path, ignore_errors=True)
    for leg in re.findall(r"^(ncp(\d+)s\d+)@", ip("-brief", "link"), flags=re.MULTILINE):
        if not psutil.pid_exists(int(leg[1])):
            subprocess.run(["ip", "link", "delete", leg[0]], capture_output=True, timeout=20)


def _is_stale(name: str) -> bool:
    match = STALE_NAME.match(name)
    return match is not None and not psutil.pid_exists(int(match[1]))


def _remove_netns(name: str) -> None:
    answer = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, timeout=20)
    for pid in answer.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=20)


def _free_network() -> ipaddress.IPv4Network:
    """A private /24 that no route of this machine touches, another for each process."""
    routes = json.loads(ip("-json", "-4", "route"))
    used = [ipaddress.ip_network(route["dst"]) for route in routes if route["dst"] != "default"]
    for attempt in range(1000):
        number = os.getpid() + attempt * 257
        network = ipaddress.IPv4Network(f"10.{200 + number // 256 % 50}.{number % 256}.0/24")
        if not any(network.overlaps(other) for other in used):
            return network
    raise RuntimeError("no free private network")


def _make_switch(stack: contextlib.ExitStack, prefix: str, controller_address: str) -> None:
    """A bridge in a namespace of its own, and this machine's leg into it."""
    switch = f"{prefix}switch"
    stack.callback(_remove_netns, switch)
    ip("netns", "add", switch)
    ip("-n", switch, "link", "add", "br0", "type", "bridge")
    ip("-n", switch, "link", "set", "br0", "up")
    leg = _leg(prefix)
    ip("link", "add", leg, "type", "veth", "peer", "name", "leg", "netns", switch)
    stack.callback(subprocess.run, ["ip", "link", "delete", leg], capture_output=True)
    ip("-n", switch, "link", "set", "leg", "master", "br0", "up")
    ip("address", "add", f"{controller_address}/24", "dev", leg)
    ip("link", "set", leg, "up")


def _leg(prefix: str) -> str:
    _, pid, serial, _ = prefix.split("-")
    return f"ncp{pid}s{serial}"[:15]


def _make_host(
    stack: contextlib.ExitStack, prefix: str, work: Path, index: int, addresses: list[str], public_key: Path
) -> RealHost:
    name, netns = f"node{index}", f"{prefix}node{index}"
    folder = work / name
    _write_host(folder, addresses, public_key)
    stack.callback(_remove_netns, netns)
    ip("netns", "add", netns)
    ip("-n", netns, "link", "set", "lo", "up")
    ip("-n", f"{prefix}switch", "link", "add", name, "type", "veth", "peer", "name", NIC, "netns", netns)
    ip("-n", f"{prefix}switch", "link", "set", name, "master", "br0", "up")
    ip("-n", netns, "address", "add", f"{addresses[index]}/24", "dev", NIC)
    ip("-n", netns, "link", "set", NIC, "up")
    unshare = ["unshare", "--uts", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child=KILL"]
    init = ["/bin/sh", "-c", INIT, "init", name, str(folder), SSHD]
    with (folder / "init.log").open("wb") as log:
        outer = start(["ip", "netns", "exec", netns, *unshare, *init], log, dict(os.environ))
    stack.callback(_end_host, outer)
    wait_until(lambda: (folder / "sshd.pid").exists() or outer.poll() is not None, f"{name} started")
    _assert_runs(outer, folder)
    (init_process,) = psutil.Process(outer.pid).children()
    return RealHost(name=name, address=addresses[index], folder=folder, netns=netns, init_pid=init_process.pid)


def _assert_runs(outer: "subprocess.Popen[bytes]", folder: Path) -> None:
    if outer.poll() is not None:
        logs = [path.read_text() for path in (folder / "init.log", folder / "sshd.log") if path.exists()]
        raise RuntimeError(f"the host {folder.name} does not start: {' '.join(logs)}")


def _end_host(outer: "subprocess.Popen[bytes]") -> None:
    """Kills PID 1, and with it all of the host; `outer` has ended when the last process has."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(outer.pid).children():
            child.kill()
    try:
        outer.wait(10)
    except subprocess.TimeoutExpired:
        outer.kill()
        outer.wait(10)


def _write_controller(home: Path, addresses: list[str]) -> Path:
    ssh = home / ".ssh"
    ssh.mkdir(parents=True, mode=0o700)
    _make_key(ssh / "id_ed25519")
    _make_key(ssh / "wrong")
    blocks = [f"Host node{index}\n  HostName {address}\n" for index, address in enumerate(addresses)]
    common = f"Host *\n  User root\n  IdentityFile {ssh}/id_ed25519\n  IdentitiesOnly yes\n"
    files = f"  UserKnownHostsFile {ssh}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
    (ssh / "config").write_text("".join(blocks) + common + files)
    (home / "hosts.txt").write_text("".join(f"node{index}\n" for index in range(len(addresses))))
    return home


def _write_host(folder: Path, addresses: list[str], public_key: Path) -> None:
    folder.mkdir()
    (folder / "home").mkdir()
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)
    _make_key(folder / "host_key")
    shutil.copy(public_key, folder / "authorized_keys")
    (folder / "sshd_config").write_text(SSHD_CONFIG.format(folder=folder))
    names = [f"{address} node{index}\n" for index, address in enumerate(addresses)]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(names))
    if Path("/etc/shadow").exists():  # sshd without PAM lets nobody in whose password is locked by "!"
        shadow = re.sub(r"^root:[^:]*:", "root:*:", Path("/etc/shadow").read_text(), flags=re.MULTILINE)
        (folder / "shadow").touch(mode=0o600)
        (folder / "shadow").write_text(shadow)


def _write_known_hosts(home: Path, hosts: list[RealHost]) -> None:
    keys = [(host.address, (host.folder / "host_key.pub").read_text().split()[:2]) for host in hosts]
    (home / ".ssh/known_hosts").write_text("".join(f"{address} {' '.join(key)}\n" for address, key in keys))


def _make_key(path: Path) -> None:
    check(
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], capture_output=True, text=True)
    )


def _is_open(address: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, 22), timeout=1):
        return True
    return False
