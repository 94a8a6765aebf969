"""The child process that does the part of a live dump that must not be cut short.

In: a request of `live_dump.ask`. Out: on standard output a JSON line, then the answer that the process wrote.

It ignores the signals that end a command. While a borrowed thread is inside a call (the loader's lock may be taken) it
cannot leave: to let go then would kill the process. So it may outlive a caller that no longer waits; it ends by itself
when the call is over, and removes the directory. Everything it needs is imported at the start: its files may be gone
by then.
"""

import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from ncclprobe.model.errors import NcclprobeError
from ncclprobe.probe import target_code
from ncclprobe.probe.askable import (
    OTHER_EVIDENCE,
    LiveDumpRefusedError,
    SleepingThread,
    check_process,
    gone,
    has_thread,
    is_gone,
    not_permitted,
    sleeping_threads,
)
from ncclprobe.probe.injection import (
    CODE_MARK,
    NO_PROCESS,
    PERMISSION_DENIED,
    InjectionError,
    Injector,
    StoppedThread,
)
from ncclprobe.probe.live_dump import LiveDumpTimeoutError
from ncclprobe.probe.target_directory import TargetDirectory, private_directory

_LIBRARY = "code.so"
_ANSWER_LIMIT_BYTES = 256 << 20
_THREADS_TRIED = 8
_LOOKS, _LOOKS_INTERVAL_S = 4, 0.05
_THREAD_END_S = 0.5
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE)

Report = dict[str, Any]
_Result = TypeVar("_Result")


def guard(request: dict[str, Any]) -> None:
    """Carry out the request and report: "thread" and "pause_s", or "what", "advice" and "is_timed_out"."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    report, answer = _carry_out(request)
    with suppress(OSError), open(1, "wb", closefd=False) as output:  # nobody may listen any more
        output.write(json.dumps(report).encode() + b"\n" + answer)


def _carry_out(request: dict[str, Any]) -> tuple[Report, bytes]:
    pid = request["pid"]
    try:
        return _inject(pid, request)
    except PermissionError:
        failure: NcclprobeError = not_permitted(pid)
    except InjectionError as error:
        failure = not_permitted(pid) if error.status == PERMISSION_DENIED else error
    except NcclprobeError as error:
        failure = error
    except Exception as error:  # noqa: BLE001  whatever goes wrong in here, the caller gets a reason
        what = f"the live dump failed: {type(error).__name__}: {error}"
        failure = gone(pid) if is_gone(pid) else LiveDumpRefusedError(what, OTHER_EVIDENCE)
    is_timed_out = isinstance(failure, LiveDumpTimeoutError)
    return {"what": str(failure), "advice": failure.advice, "is_timed_out": is_timed_out}, b""


def _inject(pid: int, request: dict[str, Any]) -> tuple[Report, bytes]:
    deadline = request["deadline"]
    injector = Injector.open(Path(request["injector"]))
    library = Path(request["code"]).read_bytes()
    if CODE_MARK not in library:
        raise LiveDumpRefusedError(f"{request['code']} is not hypno's library", "use hypno 1.1 or later")
    with private_directory(pid) as directory:
        directory.write(_LIBRARY, library)
        thread, handle = _borrow(injector, pid, lambda stopped: _start(stopped, directory, deadline), deadline)
        answer = _await_answer(pid, directory, deadline)
    with suppress(NcclprobeError):  # a library that stays loaded does nothing
        _unload(injector, pid, handle, answer)
    return {"thread": f"{thread.name} ({thread.thread_id})", "pause_s": injector.longest_stop_s}, answer


def _borrow(
    injector: Injector, pid: int, action: Callable[[StoppedThread], _Result], deadline: float = math.inf
) -> tuple[SleepingThread, _Result]:
    """Do something in the first thread that, once stopped, is still in the sleep it was chosen for.

    A thread at work at one look may sleep at the next, so there are several.
    """
    for look in range(_LOOKS):
        time.sleep(look * _LOOKS_INTERVAL_S)
        threads = sleeping_threads(pid)
        if time.monotonic() >= deadline:
            raise LiveDumpTimeoutError(f"process {pid} was not reached in time", "try again with less load on the host")
        for thread in threads[:_THREADS_TRIED]:
            with _unless_it_ended(), injector.stopped(pid, thread.thread_id) as stopped:
                if stopped.place() == (thread.system_call, thread.stack_pointer):
                    return thread, action(stopped)
    check_process(pid)
    what = f"no thread of process {pid} sleeps in a system call that may be interrupted"
    raise LiveDumpRefusedError(what, "it is at work, or waits in epoll: look at its stacks")


@contextmanager
def _unless_it_ended() -> Iterator[None]:
    try:
        yield
    except InjectionError as error:
        if error.status != NO_PROCESS:
            raise


def _start(stopped: StoppedThread, directory: TargetDirectory, deadline: float) -> int:
    """Load the library and start our thread; the library's handle. Too late, or no interpreter: unload it at once."""
    handle = stopped.load(f"{directory.path}/{_LIBRARY}")
    is_late = time.monotonic() >= deadline
    if is_late or stopped.is_python_running(handle) is False:
        stopped.unload(handle)
        if is_late:
            raise LiveDumpTimeoutError(f"process {stopped.pid} took the library in too late", OTHER_EVIDENCE)
        raise LiveDumpRefusedError(
            f"the interpreter of process {stopped.pid} is not running", "it is starting or ending"
        )
    stopped.start(handle, target_code.source(directory.path))
    return handle


def _await_answer(pid: int, directory: TargetDirectory, deadline: float) -> bytes:
    pause_s = 0.001
    while not directory.has(target_code.ANSWER):
        if is_gone(pid):
            raise gone(pid)
        if time.monotonic() >= deadline:
            what = f"process {pid} did not come to its dump: the interpreter lock is held, or torch itself waits"
            raise LiveDumpTimeoutError(what, "its stacks say who holds the lock (--native-stacks shows C frames)")
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.02)
    return directory.read(target_code.ANSWER, _ANSWER_LIMIT_BYTES)


def _unload(injector: Injector, pid: int, handle: int, answer: bytes) -> None:
    """Unload the library, if our thread has left it for good and some thread may be borrowed again."""
    inner_id = target_code.number(answer, "thread")
    limit = time.monotonic() + _THREAD_END_S
    while inner_id is not None and has_thread(pid, inner_id):
        if time.monotonic() >= limit:
            return
        time.sleep(0.001)
    if inner_id is not None:
        _borrow(injector, pid, lambda stopped: stopped.unload(handle))
