"""One real host: what can be asked of it, and the harm that can be done to it.

In: its folder, its namespace and its PID 1. Out: a `RealHost`.
"""

import contextlib
import ctypes
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.netns_commands import check, ip, wait_until

SSHD = "/usr/sbin/sshd"
NIC = "eth0"
NETNS_FOLDER = Path("/run/netns")
IDLE_COMMAND = "sleep 100000"  # of PID 1
CLONE_NEWNET = 0x4000_0000
INNER_SSHD_PORT = 2222


@dataclass(kw_only=True)
class RealHost:
    """One host. `init_pid` is its PID 1 as seen from here; the pids in its answers are its own."""

    name: str
    address: str
    folder: Path
    netns: str
    init_pid: int

    def run(self, command: str, timeout_s: float = 20) -> "subprocess.CompletedProcess[str]":
        """Runs a shell command on the host, not over the network."""
        return subprocess.run(
            [*self.enter(), "timeout", "-s", "KILL", str(timeout_s), "/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s + 5,
        )

    def enter(self) -> list[str]:
        """The command that another command must be prefixed with to run on the host."""
        return ["nsenter", f"--target={self.init_pid}", "--net", "--uts", "--pid", "--mount", "--"]

    def processes(self) -> list[str]:
        """Command lines of all that runs on the host, but for its PID 1 and its listening sshd."""
        return [command for pid, command in self._all_processes() if pid not in self._own_pids()]

    def pids_with(self, text: str) -> list[int]:
        """Pids, the host's own, of processes whose environment holds a text."""
        found = []
        for folder in self._process_folders():
            with contextlib.suppress(OSError):
                if text.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    def tmp_files(self) -> list[str]:
        """Everything in the host's /tmp, /dev/shm and home folder."""
        roots = (self.folder / "tmp", self.folder / "home", Path(f"/proc/{self.init_pid}/root/dev/shm"))
        return sorted(str(path.relative_to(root)) for root in roots for path in root.rglob("*"))

    def link_down(self) -> None:
        """Pulls the network cable."""
        ip("-n", self.netns, "link", "set", NIC, "down")

    def link_up(self) -> None:
        """Plugs it in again."""
        ip("-n", self.netns, "link", "set", NIC, "up")

    def stop_sshd_answering(self) -> None:
        """New connections are accepted, by the kernel, and never answered; open ones go on."""
        self._signal_listener("STOP")

    def let_sshd_answer(self) -> None:
        """Undoes `stop_sshd_answering`."""
        self._signal_listener("CONT")

    def hide_python(self) -> None:
        """Puts /bin/false in the place of every Python on this machine, for this host alone."""
        patterns = [f"{folder}/python[0-9.]*" for folder in ("/usr/bin", "/usr/local/bin", f"{sys.base_prefix}/bin")]
        patterns += [
            f"{Path.home()}/.pyenv/versions/*/bin/python[0-9.]*",
            f"{sys.prefix}/bin/python",
            "/opt/*/bin/python3*",
        ]
        script = (
            f"for f in {' '.join(patterns)}; do readlink -f $f; done | sort -u | "
            "while read f; do case $f in *-config) ;; *) [ -f $f ] && mount --bind /bin/false $f; esac; done; true"
        )
        check(self.run(script))

    def cut_after(self, size_bytes: int) -> None:
        """Cuts every new connection once the host has sent `size_bytes` on it."""
        check(self.run(f"kill $(cat {self.folder}/sshd.pid)"))
        inner = f"-o ListenAddress=127.0.0.1:{INNER_SSHD_PORT} -f {self.folder}/sshd_config -E {self.folder}/sshd.log"
        wait_until(lambda: not (self.folder / "sshd.pid").exists(), "sshd ended")
        check(self.run(f"{SSHD} {inner}"))
        _Cutter(self.netns, self.address, size_bytes).start()

    def _process_folders(self) -> list[Path]:
        return [path for path in Path(f"/proc/{self.init_pid}/root/proc").iterdir() if path.name.isdigit()]

    def _all_processes(self) -> list[tuple[int, str]]:
        found = []
        for folder in self._process_folders():
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if command and command != IDLE_COMMAND:
                    found.append((int(folder.name), command))
        return found

    def _own_pids(self) -> set[int]:
        with contextlib.suppress(OSError, ValueError):
            return {1, int((self.folder / "sshd.pid").read_text())}
        return {1}

    def _signal_listener(self, name: str) -> None:
        check(self.run(f"kill -{name} $(cat {self.folder}/sshd.pid)"))


class _Cutter(threading.Thread):
    """A relay in front of a host's sshd that hangs up in the middle. Its sockets are in the host's namespace."""

    def __init__(self, netns: str, address: str, size_bytes: int) -> None:
        super().__init__(name=f"cutter of {netns}", daemon=True)
        self._netns = netns
        self._address = address
        self._size_bytes = size_bytes
        self._is_listening = threading.Event()

    def start(self) -> None:
        super().start()
        if not self._is_listening.wait(10):
            raise TimeoutError("the relay does not listen")

    def run(self) -> None:
        with (NETNS_FOLDER / self._netns).open() as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        with socket.create_server((self._address, 22)) as listener:
            self._is_listening.set()
            listener.settimeout(1)
            while (NETNS_FOLDER / self._netns).exists():
                with contextlib.suppress(OSError):
                    self._relay(listener.accept()[0])

    def _relay(self, client: socket.socket) -> None:
        client.settimeout(60)
        server = socket.create_connection(("127.0.0.1", INNER_SSHD_PORT), timeout=60)
        threading.Thread(target=_copy, args=(client, server, None), daemon=True).start()
        threading.Thread(target=_copy, args=(server, client, self._size_bytes), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket, limit_bytes: int | None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536 if limit_bytes is None else min(65_536, limit_bytes)):
            target.sendall(data)
            if limit_bytes is not None:
                limit_bytes -= len(data)
                if limit_bytes <= 0:
                    break
    for sock in (source, target):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()
