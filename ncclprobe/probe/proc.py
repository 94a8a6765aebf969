"""Reading /proc, where a process may vanish or be off limits at any moment.

In: a pid, and `root` where a test has a /proc of its own. Out: text or numbers, None where the kernel does not tell.
"""

import os
from pathlib import Path

ROOT = Path("/proc")
_CHUNK_BYTES = 1 << 14
_CAP_SYS_PTRACE = 19  # linux/capability.h


def read(pid: int, name: str, limit: int = 1 << 20, root: Path = ROOT) -> bytes | None:
    """The bytes of `/proc/PID/name`, at most `limit`."""
    try:
        # Not by `open`: a host has thousands of processes, and this is half as long.
        descriptor = os.open(f"{root}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    pieces = []
    try:
        while limit and (piece := os.read(descriptor, min(limit, _CHUNK_BYTES))):
            pieces.append(piece)
            limit -= len(piece)
        return b"".join(pieces)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def link(pid: int, name: str, root: Path = ROOT) -> str | None:
    """Where the link `/proc/PID/name` points."""
    try:
        return str((root / str(pid) / name).readlink())
    except OSError:
        return None


def status(pid: int, root: Path = ROOT) -> dict[str, str]:
    """`/proc/PID/status` as a dict; empty when the process is gone."""
    text = (read(pid, "status", root=root) or b"").decode("utf-8", "replace")
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {key: value.strip() for key, value in pairs}


def stat(pid: int, root: Path = ROOT) -> list[str] | None:
    """`/proc/PID/stat` from field 3 on (proc(5)): the name before it may hold blanks and parentheses."""
    fields = (read(pid, "stat", root=root) or b"").rpartition(b")")[2].decode("ascii", "replace").split()
    return fields if len(fields) >= 20 else None


def environ(pid: int, root: Path = ROOT) -> dict[str, str] | None:
    """The environment the process was started with; None when it may not be read."""
    data = read(pid, "environ", 4 << 20, root)
    if data is None:
        return None
    pairs = (item.split("=", 1) for item in data.decode("utf-8", "replace").split("\0") if "=" in item)
    return dict(pairs)


def thread_names(pid: int, root: Path = ROOT) -> set[str]:
    """What its threads are called; empty when the process is gone."""
    try:
        ids = os.listdir(root / str(pid) / "task")
    except OSError:
        return set()
    return {(read(pid, f"task/{one}/comm", root=root) or b"").decode("utf-8", "replace").strip() for one in ids}


def pids(root: Path = ROOT) -> list[int]:
    """All processes of this PID namespace."""
    return sorted(int(name) for name in os.listdir(root) if name.isdigit())


def start_ns(pid: int, root: Path = ROOT) -> int | None:
    """When the process was started, on this host's wall clock, good to a second or so."""
    fields = stat(pid, root)
    boot_s = _boot_s(root)
    if fields is None or boot_s is None:
        return None
    return boot_s * 10**9 + int(fields[19]) * 10**9 // os.sysconf("SC_CLK_TCK")


def _boot_s(root: Path) -> int | None:
    try:
        lines = (root / "stat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("btime ")), None)


def ptrace_obstacle(pid: int, root: Path = ROOT) -> tuple[str, str]:
    """Why this user may not look into the process, and what to do (the order of the checks is that of ptrace(2))."""
    target, own = status(pid, root), status(os.getpid(), root)
    if not target:
        return "the process is gone", "run ncclprobe again: the job may be restarting"
    if target.get("TracerPid", "0") != "0":
        tracer = target["TracerPid"]
        return f"process {tracer} traces it already", f"end the debugger or tracer with pid {tracer} first"
    scope = yama_scope(root)
    if scope == 3:
        return "kernel.yama.ptrace_scope is 3: nobody may trace", "boot the host with another value of it"
    if _has_ptrace(own, "CapEff"):
        return "the kernel refuses it although CAP_SYS_PTRACE is there", _sandbox_advice(own)
    if _uid(own) not in (0, _uid(target)):
        why = f"the process belongs to another user (uid {_uid(target)}, we are uid {_uid(own)})"
        return why, "run as that user, or as root (sudo)"
    if _uid(own) == 0:
        advice = "start the container with --cap-add SYS_PTRACE, or run on its host"
        return "the capability CAP_SYS_PTRACE is missing", advice
    if _has_more(target, own):
        return "the process has capabilities that we lack", "run as root (sudo)"
    if scope:
        why = f"kernel.yama.ptrace_scope is {scope}"
        return why, "run as root, or: sudo sysctl kernel.yama.ptrace_scope=0"
    if own.get("Seccomp", "0") != "0":
        return "a seccomp filter forbids it here", _sandbox_advice(own)
    return "the process is protected (its program changed the user or may not be read)", "run as root (sudo)"


def _sandbox_advice(own: dict[str, str]) -> str:
    if own.get("Seccomp", "0") != "0":
        return "run on the container's host, or start the container with --security-opt seccomp=unconfined"
    return "run on the container's host, and see its SELinux or AppArmor log"


def _uid(fields: dict[str, str]) -> int:
    return int(fields.get("Uid", "-1").split()[0])


def _has_ptrace(fields: dict[str, str], name: str) -> bool:
    return bool(int(fields.get(name, "0"), 16) >> _CAP_SYS_PTRACE & 1)


def _has_more(target: dict[str, str], own: dict[str, str]) -> bool:
    """Whether the target holds a capability that we lack: then being the same user is not enough."""
    return bool(int(target.get("CapPrm", "0"), 16) & ~int(own.get("CapEff", "0"), 16))


def may_ptrace(pid: int, root: Path = ROOT) -> bool:
    """Whether a process has CAP_SYS_PTRACE in effect."""
    return _has_ptrace(status(pid, root), "CapEff")


def yama_scope(root: Path = ROOT) -> int:
    """kernel.yama.ptrace_scope, 0 where there is none: 0 same user, 1 own descendants, 2 capability, 3 nobody."""
    try:
        return int((root / "sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return 0
