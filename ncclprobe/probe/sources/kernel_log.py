"""The end of the kernel's log: whom it killed for memory, and what it says of GPUs, links and storage.

In: dmesg, else the journal, else the log files. Out: the text, at most 1 MiB of it.
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.probe.source import Context, Disturbance, Found, Source

_COMMANDS = (
    ("dmesg", "--time-format", "iso"),
    ("dmesg",),
    ("journalctl", "-k", "-b", "-o", "short-iso", "--no-pager", "-n", "5000"),
)
_FILES = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")
_LIMIT_BYTES = 1 << 20
_HEAD_BYTES = 4_096
_TIMEOUT_S = 6


def collect(context: Context) -> Iterator[Found | Gap]:
    """The first of the places that may be read."""
    start_ns = time.time_ns()
    reasons = []
    for command in _COMMANDS:
        output, reason = _run(command)
        if output:
            yield _found(" ".join(command), output, start_ns)
            return
        reasons.append(reason)
    for name in _FILES:
        data = _tail(Path(name))
        if data:
            yield _found(name, data, start_ns)
            return
    yield Gap(
        who=context.host,
        what="no kernel log, so an out-of-memory kill would not be seen",
        why=reasons[0],
        action="run as root, or: sudo sysctl kernel.dmesg_restrict=0",
    )


def _run(command: tuple[str, ...]) -> tuple[bytes, str]:
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return b"", f"{command[0]} did not end in {_TIMEOUT_S} s"
    except OSError as failure:
        return b"", f"{command[0]} cannot be run: {failure.strerror}"
    if done.returncode == 0 and _says_something(done.stdout):
        return done.stdout, ""
    error = done.stderr.decode("utf-8", "replace").strip()
    return b"", error.splitlines()[0][:200] if error else f"{command[0]} printed nothing"


def _says_something(output: bytes) -> bool:
    """Without a right to read it, the journal prints no error but `-- No entries --`."""
    return any(line.strip() and not line.startswith(b"-- ") for line in output[:_HEAD_BYTES].splitlines())


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LIMIT_BYTES))
            return file.read(_LIMIT_BYTES)
    except OSError:
        return b""


def _found(origin: str, data: bytes, start_ns: int) -> Found:
    return Found(
        file="kernel.log",
        kind=Kind.KERNEL_LOG,
        origin=origin,
        data=data[-_LIMIT_BYTES:],
        start_ns=start_ns,
        end_ns=time.time_ns(),
        truncated=len(data) > _LIMIT_BYTES,
    )


SOURCE = Source(name="kernel_log", disturbs=Disturbance.NOTHING, collect=collect)
