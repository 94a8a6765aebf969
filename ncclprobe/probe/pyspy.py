"""Running py-spy on one process.

In: a pid. Out: its JSON, or why there is none.
"""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from ncclprobe.probe import proc

_ATTEMPTS = 3
_REFUSALS = ("ermission", "not permitted", "os error 1)", "os error 13)")
_WAS_STOPPED = "unexpected waitpid result"  # its state flickers while py-spy lets it go again
_SANDBOXED = ("os error 38)", "not implemented")  # ENOSYS: what some seccomp filters answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """What py-spy printed. `pause_s` bounds the time the process was stopped: 0 when py-spy only read its memory.

    `exit_status` is None when py-spy did not end in time (`was_started`) or could not be started.
    """

    origin: str
    output: bytes
    error: str
    exit_status: int | None
    was_started: bool
    start_ns: int
    end_ns: int
    pause_s: float

    @property
    def is_good(self) -> bool:
        """Whether there are stacks in it."""
        return self.exit_status == 0 and bool(self.output.strip())

    @property
    def is_refused(self) -> bool:
        """Whether the kernel does not let us look: to try again is no use."""
        return any(word in self.error for word in _REFUSALS)


def find(tools: Path) -> Path | None:
    """The py-spy that came with the kit, else the host's own (a kit carries the controller's architecture only)."""
    shipped = tools / "py-spy"
    if shipped.exists():
        return shipped
    found = shutil.which("py-spy")
    return Path(found) if found else None


def dump(program: Path, pid: int, *, blocking_first: bool, native: bool, timeout_s: float = 5.0) -> Dump:
    """Stacks as JSON: without stopping the process at first, stopping it for some milliseconds if that fails.

    Reading a running process's memory can catch it half-way through a change, so a failed try is repeated.
    """
    needs_stop = blocking_first or native
    plans = [True] if needs_stop else [False] * _ATTEMPTS + [True]
    for is_blocking in plans:
        result = _run(program, pid, is_blocking=is_blocking, native=native, timeout_s=timeout_s)
        if result.is_good or result.is_refused or result.exit_status is None or proc.stat(pid) is None:
            break
    return result


def why_not(result: Dump, pid: int) -> tuple[str, str]:
    """What went wrong, for a person, and what to do."""
    if not result.was_started:
        return f"py-spy cannot be run: {result.error}", "set TMPDIR on the host to a directory not mounted noexec"
    if result.exit_status is None:
        why = f"py-spy did not answer in time (state {_state(pid)})"
        return why, "the process may be in uninterruptible sleep: see its wait channel and dmesg"
    if result.is_refused or proc.stat(pid) is None:
        return proc.ptrace_obstacle(pid)
    if any(word in result.error for word in _SANDBOXED):
        return "a sandbox here forbids to read another process", "run on the container's host"
    if _state(pid) in "Tt" or _WAS_STOPPED in result.error:
        return "the process is stopped", f"let it go on first: kill -CONT {pid}"
    silent = f"it ended with status {result.exit_status} and said nothing"
    first = next((line for line in result.error.splitlines() if line.strip()), silent)
    return f"py-spy failed: {first.removeprefix('Error: ')[:160]}", "try --blocking-stacks, or pystack on the host"


def _state(pid: int) -> str:
    return (proc.stat(pid) or ["gone"])[0]


def _run(program: Path, pid: int, *, is_blocking: bool, native: bool, timeout_s: float) -> Dump:
    command = [str(program), "dump", "--json", "--pid", str(pid)]
    command += [] if is_blocking else ["--nonblocking"]
    command += ["--native"] if native else []
    start_ns, started = time.time_ns(), time.monotonic()
    output, error, status, was_started = b"", "", None, True
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=timeout_s, check=False, env={**os.environ, "RUST_BACKTRACE": "0"}
        )
        output, error, status = done.stdout, done.stderr.decode("utf-8", "replace"), done.returncode
    except subprocess.TimeoutExpired:
        pass
    except OSError as failure:
        error, was_started = failure.strerror or str(failure), False
    return Dump(
        origin=" ".join(["py-spy", *command[1:]]),
        output=output,
        error=error,
        exit_status=status,
        was_started=was_started,
        start_ns=start_ns,
        end_ns=time.time_ns(),
        pause_s=time.monotonic() - started if is_blocking else 0.0,
    )
