"""The parent of a reproducer's job, which outlives whoever asked for it just long enough to clean up.

In: a JSON `Request` line on standard input, then nothing until end of file, which means that the asker has gone, be it
by SIGKILL. Out: on standard output the pid of the launcher, then its exit status, or what the system said against it.
After end of file no process, file or cgroup of the job is left. Runs as a script: it imports the standard library only.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TypedDict

TOKEN_VARIABLE = "NCCLPROBE_REPRO"  # noqa: S105 - no secret: it marks the job's processes, whoever their parent is by now
KILL_DEADLINE_S = 10.0
_POLL_S = 0.1
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Request(TypedDict):
    """What to run: `argv` in a new private `directory`, where a copy of `program` waits; `token` is the job's own.

    `log` gets what the launcher itself prints. `cgroups`: directories to make, and what to write into their files.
    """

    directory: str
    program: str
    argv: list[str]
    token: str
    log: str
    cgroups: dict[str, dict[str, str]]


def processes_of(token: str) -> dict[int, dict[str, str]]:
    """The live processes of a job, the launcher and all that descend from it: pid -> environment."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or belongs to another user; a zombie's environment is empty
            pairs = entry.read_bytes().decode(errors="replace").split("\0")
            environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            if environment.get(TOKEN_VARIABLE) == token:
                found[int(entry.parent.name)] = environment
    return found


def parent_of(pid: int) -> int | None:
    """The parent's pid, or None once `pid` has ended."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def cpu_ticks_of(pid: int) -> int:
    """The CPU time that a process has used so far, in clock ticks; 0 once it has ended."""
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if fields else 0


def _stat(pid: int) -> list[str]:
    """`/proc/PID/stat` from the state on: the command before it may hold spaces and parentheses."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def kill_all(token: str) -> None:
    """Kill the job's processes and wait until none is left, for at most `KILL_DEADLINE_S`."""
    deadline = time.monotonic() + KILL_DEADLINE_S
    # Again and again, since a process can fork between being listed and being killed.
    while (pids := processes_of(token)) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def remove_cgroups(paths: Iterable[str]) -> None:
    """Remove cgroups once their processes are gone, which the kernel may learn a moment later than we do."""
    deadline = time.monotonic() + KILL_DEADLINE_S
    for path in paths:
        while os.path.isdir(path) and time.monotonic() < deadline:
            with suppress(OSError):
                os.rmdir(path)
            time.sleep(0.01)


def _make_cgroups(cgroups: dict[str, dict[str, str]]) -> None:
    for path, files in cgroups.items():
        os.mkdir(path)
        for name, value in files.items():
            Path(path, name).write_text(value)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _start(request: Request) -> "subprocess.Popen[bytes]":
    """The launcher, its output in a file. It gets SIGTERM, and ends its ranks, should this process be killed."""
    directory = Path(request["directory"])
    shutil.copy(request["program"], directory)
    (directory / "tmp").mkdir()
    with (directory / request["log"]).open("wb") as log:
        return subprocess.Popen(
            request["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            env={**os.environ, TOKEN_VARIABLE: request["token"], "TMPDIR": str(directory / "tmp")},
            preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509 - no threads here
        )


def _supervise(request: Request) -> None:
    """Start the job, tell how it ends, and stay until the asker has gone: files must outlast processes."""
    asker = os.getppid()
    job = _start(request)
    print(job.pid, flush=True)
    is_told = False
    # End of file alone would do, but for a child of the asker that has inherited the other end of the pipe.
    while os.getppid() == asker and not select.select([sys.stdin], [], [], _POLL_S)[0]:
        if not is_told and job.poll() is not None:
            kill_all(request["token"])  # ranks live in sessions of their own and survive a launcher that was killed
            print(job.returncode, flush=True)
            is_told = True


def _clear(token: str) -> None:
    """Kill the job and wait until it is gone: what is killed holds ports and GPU memory for a while."""
    deadline = time.monotonic() + KILL_DEADLINE_S
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            kill_all(token)
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.01)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(1)


def main() -> None:
    """Read the request, run the job, leave nothing."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave)
    line = sys.stdin.readline()
    if not line:
        return
    request: Request = json.loads(line)
    # A rank whose launcher was killed becomes a child of this process instead of init's.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    Path(request["directory"]).mkdir(mode=0o700)
    try:
        _make_cgroups(request["cgroups"])
        _supervise(request)
    finally:
        _clear(request["token"])
        remove_cgroups(request["cgroups"])
        shutil.rmtree(request["directory"], ignore_errors=True)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        print(error, flush=True)
