"""The parent of a reproducer's job, which outlives whoever asked for it just long enough to clean up.

In: a JSON `Request` line on standard input, then nothing until end of file, which means that the asker has gone, be it
by SIGKILL. Out: on standard output the pid of the launcher, then its exit status, or what the system said against it;
between the two, if files are followed, a JSON `News` line whenever there is some. After end of file no process, file or
cgroup of the job is left. Runs as a script, also on other hosts: it imports the standard library only.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TypedDict

TOKEN_VARIABLE = "NCCLPROBE_REPRO"  # noqa: S105 - no secret: it marks the job's processes, whoever their parent is by now
KILL_DEADLINE_S = 10.0
TICKS_AT_REST = 10  # 0.1 s of CPU: what ranks that wait use together within some seconds, at most
_POLL_S = 0.1
_SOCKET_PATH_BYTES = 107  # the longest that the kernel takes
_LOADER_SOCKET_BYTES = len("/pymp-12345678/listener-4194304-10-12345678")  # what a data loader appends to TMPDIR
_NEWS_BYTES = 16 << 10  # of a file, at a time
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Request(TypedDict):
    """What to run: `argv` in a new private `directory`, where `files` (name -> text) wait; `token` is the job's own.

    A relative `directory` is below the one for temporary files. `log` gets what the launcher itself prints. `cgroups`:
    directories to make, and what to write into their files. `follow`: files in `directory` whose text is news.
    """

    directory: str
    files: dict[str, str]
    argv: list[str]
    token: str
    log: str
    cgroups: dict[str, dict[str, str]]
    follow: list[str]


class News(TypedDict):
    """`ranks`: rank -> pid of the launcher's children. `cpu_use`: as `cpu_use_of` has it. `texts`: file -> new text."""

    ranks: dict[str, int]
    cpu_use: int
    texts: dict[str, str]


def processes_of(token: str) -> dict[int, dict[str, str]]:
    """The live processes of a job, the launcher and all that descend from it: pid -> environment."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    environments = ((pid, _environment_of(pid)) for pid in pids)
    return {pid: environment for pid, environment in environments if environment.get(TOKEN_VARIABLE) == token}


def _environment_of(pid: int) -> dict[str, str]:
    """Empty if it has ended, or belongs to another user; a zombie's is empty, too."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def parent_of(pid: int) -> int | None:
    """The parent's pid, or None once `pid` has ended."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def cpu_use_of(pids: Iterable[int]) -> int:
    """The CPU time that processes have used so far, in `TICKS_AT_REST` clock ticks; of ended ones nothing counts."""
    fields = filter(None, map(_stat, pids))
    return sum(int(field[11]) + int(field[12]) for field in fields) // TICKS_AT_REST


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


def temporary_directory(directory: str, token: str) -> str:
    """The TMPDIR of a job: in its directory, unless that is too long a path for the sockets of data loaders."""
    own = f"{directory}/tmp"  # noqa: S108 - private, as the directory is
    is_short = len(os.fsencode(own)) + _LOADER_SOCKET_BYTES <= _SOCKET_PATH_BYTES
    return own if is_short else _short_directory(token)


def _short_directory(token: str) -> str:
    return f"/tmp/ncclprobe-{token[-12:]}"  # noqa: S108 - the token cannot be guessed


def remove_files(directory: str, token: str) -> None:
    """Remove the files of a job."""
    for place in (directory, _short_directory(token)):
        shutil.rmtree(place, ignore_errors=True)


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
    for name, text in request["files"].items():
        (directory / name).write_text(text, encoding="utf-8")
    temporary = temporary_directory(request["directory"], request["token"])
    os.mkdir(temporary, 0o700)
    with (directory / request["log"]).open("wb") as log:
        return subprocess.Popen(
            request["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            env={**os.environ, TOKEN_VARIABLE: request["token"], "TMPDIR": temporary},
            preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509 - no threads here
        )


class _Newspaper:
    """Prints what is new about a job: how far each followed file has been told is kept in bytes."""

    def __init__(self, request: Request, launcher: int) -> None:
        self._paths = {name: Path(request["directory"], name) for name in request["follow"]}
        self._told_bytes = dict.fromkeys(self._paths, 0)
        self._launcher = launcher
        self._last = News(ranks={}, cpu_use=0, texts={})

    def print(self) -> bool:
        """Whether there was something."""
        ranks = self._ranks() if self._paths else {}
        texts = {name: text for name, path in self._paths.items() if (text := self._new_text(name, path))}
        news = News(ranks=ranks, cpu_use=cpu_use_of(ranks.values()), texts=texts)
        if news == self._last:
            return False
        print(json.dumps(news), flush=True)
        self._last = News(ranks=ranks, cpu_use=news["cpu_use"], texts={})
        return True

    def _ranks(self) -> dict[str, int]:
        try:
            pids = Path(f"/proc/{self._launcher}/task/{self._launcher}/children").read_text().split()
        except OSError:
            return {}
        ranks = {_environment_of(int(pid)).get("RANK"): int(pid) for pid in pids}
        return {rank: pid for rank, pid in ranks.items() if rank is not None}

    def _new_text(self, name: str, path: Path) -> str:
        try:
            with path.open("rb") as file:
                file.seek(self._told_bytes[name])
                data = file.read(_NEWS_BYTES)
        except OSError:  # it is not there yet
            return ""
        self._told_bytes[name] += len(data)
        return data.decode(errors="replace")


def _supervise(request: Request) -> None:
    """Start the job, tell how it goes and ends, and stay until the asker has gone: files must outlast processes."""
    asker = os.getppid()
    job = _start(request)
    print(job.pid, flush=True)
    newspaper = _Newspaper(request, job.pid)
    is_told = False
    # End of file alone would do, but for a child of the asker that has inherited the other end of the pipe.
    while os.getppid() == asker and not select.select([sys.stdin], [], [], _POLL_S)[0]:
        if is_told:
            continue
        has_ended = job.poll() is not None
        has_news = newspaper.print()
        if has_ended and not has_news:
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
    _ignore_signals()
    sys.exit(1)


def _ignore_signals() -> None:
    """Cleaning up must not be interrupted: a session that ends may tell its processes so more than once."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def main() -> None:
    """Read the request, run the job, leave nothing."""
    for number in _SIGNALS:
        signal.signal(number, _leave)
    line = sys.stdin.readline()
    if not line:
        return
    request: Request = json.loads(line)
    request["directory"] = os.path.join(tempfile.gettempdir(), request["directory"])
    # A rank whose launcher was killed becomes a child of this process instead of init's.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    Path(request["directory"]).mkdir(mode=0o700)
    try:
        _make_cgroups(request["cgroups"])
        _supervise(request)
    finally:
        _ignore_signals()
        _clear(request["token"])
        remove_cgroups(request["cgroups"])
        remove_files(request["directory"], request["token"])


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        print(error, flush=True)
