"""Hosts on this machine, made of namespaces: each with its own processes, name, network interfaces and sshd.

In: one argument, a JSON `Plan`; to be run as the first process of new network, PID and mount namespaces, in the job's
private directory. Out: a launcher on each host; the highest exit status once all have ended. All of it ends with this
process, and as no namespace, link or mount has a name outside, nothing can stay behind.

    eth0     10.77.0.x  reaches this process' network too, where `home/` holds what SSH needs to log in
    eth1     10.78.0.x  between the hosts: the job's own network
    docker0  10.17.x.1  as Docker makes it: leads nowhere, and what other hosts send there is lost on the way

Runs as a script, so it imports the standard library only.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

ADMIN_NIC, DATA_NIC, LOST_NIC = "eth0", "eth1", "docker0"
HOME = "home"
_SSH_PORT = 22
_DEADLINE_S = 20.0
_POLL_S = 0.05
_ADMIN, _DATA = "10.77.0", "10.78.0"
_LOST = "10.17"  # of two ranks gloo lets the one with the lower address listen: it must be lower than the others
_STEP = re.compile(r"^step (\d+)\b", re.MULTILINE)
_TAIL_BYTES = 4096

# Arguments: host name, sshd, its folder. PID 1 of the host; it reaps what is orphaned.
_INIT = """
hostname "$1" && mount -t sysfs sysfs /sys && "$2" -f "$3/sshd_config" -E "$3/sshd.log" &&
while :; do sleep 100000 & wait $!; done
"""
_SSHD_CONFIG = """
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
AuthorizedKeysFile {home}/.ssh/id_ed25519.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
PermitUserRC no
PrintMotd no
PrintLastLog no
"""
_SSH_CONFIG = """
Host *
  User root
  IdentityFile {home}/.ssh/id_ed25519
  IdentitiesOnly yes
  UserKnownHostsFile {home}/.ssh/known_hosts
  GlobalKnownHostsFile /dev/null
"""


class Plan(TypedDict):
    """`launchers`: a command line per host. `links_down`: host number and interface, cut at that step."""

    launchers: list[list[str]]
    sshd: str
    links_down: list[tuple[int, str]]
    at_step: int


def address(host: int) -> str:
    """Of a host in the job's own network."""
    return f"{_DATA}.{10 + host}"


def name(host: int) -> str:
    """What a host is called."""
    return f"node{host}"


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)[:200]}: {done.stderr.strip() or done.stdout.strip()}")


def _mount() -> None:
    """Give sshd, which writes to /run and /var/log, empty ones, which are seen from here only."""
    for place in ("/run", "/var/log"):
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", place)
    Path("/run/sshd").mkdir()
    shadow = Path("/etc/shadow")
    if shadow.exists():  # sshd without PAM lets nobody in whose password is locked by "!"
        text = re.sub(r"^root:[^:]*:", "root:*:", shadow.read_text(), flags=re.MULTILINE)
        Path("shadow").touch(mode=0o600)
        Path("shadow").write_text(text)
        _run("mount", "--bind", "shadow", str(shadow))


def _make_key(path: Path) -> None:
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))


def _write_home(hosts: int) -> Path:
    """What whoever logs in on the hosts needs."""
    home = Path(HOME).resolve()
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    _make_key(home / ".ssh/id_ed25519")
    names = "".join(f"Host {name(host)}\n  HostName {_ADMIN}.{10 + host}\n" for host in range(hosts))
    (home / ".ssh/config").write_text(names + _SSH_CONFIG.format(home=home))
    (home / "hosts").write_text("".join(f"{name(host)}\n" for host in range(hosts)))
    return home


def _make_switches() -> None:
    _run("ip", "link", "set", "lo", "up")
    for bridge in (ADMIN_NIC, DATA_NIC):
        _run("ip", "link", "add", f"to-{bridge}", "type", "bridge")
        _run("ip", "link", "set", f"to-{bridge}", "up")
    _run("ip", "address", "add", f"{_ADMIN}.1/24", "dev", f"to-{ADMIN_NIC}")
    _run("ip", "route", "add", "blackhole", f"{_LOST}.0.0/16")


def _make_host(host: int, home: Path, sshd: str) -> int:
    """Start it, and plug it in; the pid of its first process."""
    folder = Path(name(host)).resolve()
    folder.mkdir()
    _make_key(folder / "host_key")
    (folder / "sshd_config").write_text(_SSHD_CONFIG.format(folder=folder, home=home))
    public_key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    with (home / ".ssh/known_hosts").open("a") as known:
        known.write(f"{_ADMIN}.{10 + host} {public_key}\n")
    unshare = ["unshare", "--net", "--uts", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child=KILL"]
    with (folder / "init.log").open("wb") as log:
        outer = subprocess.Popen(
            [*unshare, "/bin/sh", "-c", _INIT, "init", name(host), sshd, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    pid = _first_child(outer.pid)
    _plug_in(host, pid)
    return pid


def _first_child(pid: int) -> int:
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        # The child exists before it has its namespaces' /proc; its network is there from its first moment.
        if children:
            return int(children[0])
        time.sleep(_POLL_S)
    raise OSError("a host does not start")


def _plug_in(host: int, pid: int) -> None:
    inside = ["nsenter", f"--target={pid}", "--net", "--", "ip"]
    for nic, network in ((ADMIN_NIC, _ADMIN), (DATA_NIC, _DATA)):
        port = _port(host, nic)
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", nic, "netns", str(pid))
        _run("ip", "link", "set", port, "master", f"to-{nic}", "up")
        _run(*inside, "address", "add", f"{network}.{10 + host}/24", "dev", nic)
        _run(*inside, "link", "set", nic, "up")
    _run(*inside, "link", "add", LOST_NIC, "type", "bridge")
    _run(*inside, "address", "add", f"{_LOST}.{host}.1/24", "dev", LOST_NIC)
    for nic in (LOST_NIC, "lo"):
        _run(*inside, "link", "set", nic, "up")
    _run(*inside, "route", "add", "default", "via", f"{_ADMIN}.1")


def _port(host: int, nic: str) -> str:
    """The switch's end of a host's cable."""
    return f"{name(host)}-{nic}"


def _wait_for_sshd(host: int) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((f"{_ADMIN}.{10 + host}", _SSH_PORT), timeout=1):
            return
        time.sleep(_POLL_S)
    raise OSError(f"sshd of {name(host)} does not listen: {Path(name(host), 'sshd.log').read_text().strip()[-200:]}")


def _start(pid: int, launcher: list[str]) -> "subprocess.Popen[bytes]":
    """On the host whose first process that is."""
    enter = ["nsenter", f"--target={pid}", "--net", "--uts", "--pid", "--mount", f"--wdns={os.getcwd()}", "--"]
    return subprocess.Popen([*enter, *launcher], stdin=subprocess.DEVNULL)


def _step() -> int:
    """The last step that any rank has finished."""
    return max((int(number) for path in Path("logs").glob("*.out") for number in _STEP.findall(_tail(path))), default=0)


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace")


def _watch(plan: Plan, launchers: "list[subprocess.Popen[bytes]]") -> int:
    """Cut the links in time, and wait for the launchers."""
    left, highest, is_cut = {launcher.pid for launcher in launchers}, 0, not plan["links_down"]
    while left:
        if not is_cut and _step() >= plan["at_step"]:
            is_cut = True
            for host, nic in plan["links_down"]:
                _run("ip", "link", "set", _port(host, nic), "down")
        pid, status = os.waitpid(-1, os.WNOHANG)  # the first process of a PID namespace reaps for all of it
        if pid == 0:
            time.sleep(_POLL_S)
        elif pid in left:
            left.remove(pid)
            highest = max(highest, abs(os.waitstatus_to_exitcode(status)))
    return highest


def main() -> None:
    """Make the hosts, run the job on them."""
    plan: Plan = json.loads(sys.argv[1])
    hosts = range(len(plan["launchers"]))
    Path("logs").mkdir()
    _mount()
    home = _write_home(len(hosts))
    _make_switches()
    pids = [_make_host(host, home, plan["sshd"]) for host in hosts]
    for host in hosts:
        _wait_for_sshd(host)
    sys.exit(_watch(plan, [_start(pid, argv) for pid, argv in zip(pids, plan["launchers"], strict=True)]))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"the hosts cannot be made: {error}")
