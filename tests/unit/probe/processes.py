"""Real processes for the probe to look at, and work done as somebody else.

In: programs and functions. Out: pids that are ended with the test; results of functions run in a child.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOBODY = 65_534
LIBC = ctypes.CDLL(None, use_errno=True)
SLEEPER = "import sys, time; print('ready', flush=True); time.sleep(600)"


@contextmanager
def running(
    code: str = SLEEPER,
    *,
    environ: Mapping[str, str] | None = None,
    command: tuple[str, ...] = (sys.executable, "-c"),
    **options: Any,
) -> Iterator[int]:
    """A program that has said "ready"; it and its process group are killed in the end."""
    process = subprocess.Popen(
        [*command, code],
        stdout=subprocess.PIPE,
        env={**os.environ, **(environ or {})},
        start_new_session=True,
        **options,
    )
    assert process.stdout
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def in_child(work: Callable[[], Any], *, user: int | None = None) -> Any:
    """What `work` returns (JSON) in a forked child, as another user if asked; what it raises is raised here."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            answer = json.dumps({"result": work()})
        except BaseException as error:  # noqa: BLE001
            answer = json.dumps({"error": f"{type(error).__name__}: {error}"})
        os.write(write_fd, answer.encode())
        os._exit(0)
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as pipe:
        answer = json.loads(pipe.read())
    os.waitpid(pid, 0)
    if "error" in answer:
        raise AssertionError(answer["error"])
    return answer["result"]


def installed_pythons(minors: Iterable[int]) -> list[Path]:
    """Interpreters of Python 3 that run here, one a minor version; found on PATH and where pyenv puts them."""
    found = []
    for name in (f"python3.{minor}" for minor in minors):
        candidates = [shutil.which(name), *sorted(map(str, Path.home().glob(f".pyenv/versions/*/bin/{name}")))]
        for candidate in filter(None, candidates):
            if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
                found.append(Path(candidate))
                break
    return found


def wait_until(is_true: Callable[[], object], what: str, timeout_s: float = 10) -> None:
    """Returns as soon as it is true; fails when that takes too long."""
    limit = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < limit, f"not in {timeout_s} s: {what}"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
