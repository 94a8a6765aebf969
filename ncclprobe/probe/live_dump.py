"""Ask a running, unprepared process for its flight recorder.

In: the pid of a Python process, the two injection libraries. Out: `LiveDump`, the recorders' pickles; or why not:
`LiveDumpRefusedError` when the process was not asked or had nothing to say, `LiveDumpTimeoutError`.

What happens to the process: a thread that sleeps in a system call is stopped for some milliseconds, twice (to load a
small library and start a thread of our own, and to unload the library). Our thread takes the interpreter lock like any
Python thread, calls torch's dump functions, writes their bytes to a private directory and ends. It imports nothing and
leaves no name behind. When the lock does not come free in time, the directory goes; the thread finds it gone when its
turn comes, and ends without a dump. The library, some 80 KB, stays loaded then.

All ptrace work is done by `live_dump_guardian`, a child process in a session of its own, which may not be killed.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ncclprobe.model.errors import NcclprobeError
from ncclprobe.probe import target_code
from ncclprobe.probe.askable import OTHER_EVIDENCE, LiveDumpRefusedError, check_process
from ncclprobe.probe.injection import InjectionLibraries
from ncclprobe.probe.recorders import with_entries

__all__ = ["InjectionLibraries", "LiveDump", "LiveDumpRefusedError", "LiveDumpTimeoutError", "ask"]

_GRACE_S = 0.3
_GIL_LOOKS, _GIL_INTERVAL_S = 4, 0.15
_PARTS_LIMIT, _PROBLEM_CHARACTERS = 16, 300
_START = (
    "import json, sys; request = json.loads(sys.argv[1]); sys.path[:] = request['modules'];"
    "from ncclprobe.probe.live_dump_guardian import guard; guard(request)"
)


class LiveDumpTimeoutError(NcclprobeError):
    """No answer came in time; the process goes on as before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDump:
    """What the process answered.

    `dumps`: recorder ("nccl", or "c10d": gloo and others) -> its pickle; only recorders with entries, unless none has
    any. `problems`: recorders that failed. `thread`: name and id of the thread that was stopped. `pause_s`: the longest
    time that a thread was stopped or the interpreter lock held. `seconds`: from the call to the answer.
    """

    dumps: dict[str, bytes]
    problems: tuple[str, ...]
    thread: str
    pause_s: float
    seconds: float


def ask(
    pid: int,
    libraries: InjectionLibraries,
    *,
    timeout_s: float = 5.0,
    is_gil_held: Callable[[], bool | None] | None = None,
) -> LiveDump:
    """Ask process `pid` for its recorders; LiveDumpRefusedError or LiveDumpTimeoutError when there is no dump.

    `is_gil_held` says whether some thread holds the interpreter lock at this moment. When it does at every look over
    half a second, the process is refused: the request would only wait. None (unknown) is no reason to refuse, since a
    request that waits for the lock harms nobody. `timeout_s` bounds all that follows those looks.
    """
    begin = time.monotonic()
    check_process(pid)
    if is_gil_held is not None:
        _check_gil(pid, is_gil_held)
    report, answer = _run_guardian(pid, libraries, timeout_s)
    parts = list(islice(target_code.parts(answer), _PARTS_LIMIT))
    dumps = {name: data for name, data in parts if name in target_code.RECORDERS}
    problems = tuple(data.decode(errors="replace")[:_PROBLEM_CHARACTERS] for name, data in parts if name == "problem")
    if not dumps:
        reason = "; ".join(problems) or "its torch is too old (2.2 has one for NCCL, 2.8 for gloo)"
        raise LiveDumpRefusedError(f"process {pid} has no flight recorder: {reason}", OTHER_EVIDENCE)
    return LiveDump(
        dumps=with_entries(dumps),
        problems=problems,
        thread=report["thread"],
        pause_s=max(report["pause_s"], (target_code.number(answer, "held-ns") or 0) / 1e9),
        seconds=time.monotonic() - begin,
    )


def _check_gil(pid: int, is_gil_held: Callable[[], bool | None]) -> None:
    for look in range(_GIL_LOOKS):
        if look > 0:
            time.sleep(_GIL_INTERVAL_S)
        if not is_gil_held():
            return
    what = f"a thread of process {pid} keeps the interpreter lock"
    raise LiveDumpRefusedError(what, "look at that thread's stack (--native-stacks shows its C frames)")


def _run_guardian(pid: int, libraries: InjectionLibraries, timeout_s: float) -> tuple[dict[str, Any], bytes]:
    """Its report and the answer, or its refusal as an exception. It is not waited for longer than agreed."""
    guardian = _start_guardian(pid, libraries, timeout_s)
    try:
        output, _ = guardian.communicate(timeout=timeout_s + _GRACE_S)
    except subprocess.TimeoutExpired:
        _leave(guardian)
        what = f"process {pid} did not take a library in within {timeout_s:g} s"
        raise LiveDumpTimeoutError(what, f"leave process {guardian.pid} alone: it lets go as soon as it can") from None
    line, _, answer = output.partition(b"\n")
    if not line:
        raise LiveDumpRefusedError(f"the live dump's own process ended with {guardian.returncode}", OTHER_EVIDENCE)
    report: dict[str, Any] = json.loads(line)
    if "what" in report:
        failure = LiveDumpTimeoutError if report["is_timed_out"] else LiveDumpRefusedError
        raise failure(report["what"], report["advice"])
    return report, answer


def _start_guardian(pid: int, libraries: InjectionLibraries, timeout_s: float) -> "subprocess.Popen[bytes]":
    request = {
        "pid": pid,
        "injector": str(libraries.injector.absolute()),
        "code": str(libraries.code.absolute()),
        "deadline": time.monotonic() + timeout_s,
        "modules": [str(Path(entry).absolute()) for entry in sys.path],
    }
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", "-c", _START, json.dumps(request)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


def _leave(guardian: "subprocess.Popen[bytes]") -> None:
    if guardian.stdout is not None:
        guardian.stdout.close()
    threading.Thread(target=guardian.wait, daemon=True).start()  # else it would stay as a zombie
