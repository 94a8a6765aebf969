"""Processes for the tests of the live dump to ask.

In: what a process does. Out: that process, running; and what the live dump left on this machine.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ncclprobe.probe.injection import InjectionLibraries
from ncclprobe.probe.target_directory import NAME_PREFIX

# A torch.distributed that costs nothing. `asked` counts the dumps.
FAKE_TORCH = """
import ctypes, os, sys, threading, time, types
asked = []
binding = types.ModuleType("torch._C._distributed_c10d")
binding._dump_fr_trace = lambda: asked.append(1) or b"profiling_name gloo:all_reduce"
sys.modules[binding.__name__] = binding
"""
# A thread that sleeps in futex for ever, as library threads do between their tasks.
SLEEPER = "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
# The end of a program: it says that it is ready, and goes on when it is told to.
WAIT = """
print("ready", flush=True)
sys.stdin.readline()
"""


# Not the virtual environment's link: a container of a test may hide the folder that it is in.
INTERPRETER = os.path.realpath(sys.executable)


@dataclass(frozen=True, slots=True)
class Asked:
    """A running process. `pid` is that of its Python, `process` may be a wrapper around it."""

    process: "subprocess.Popen[str]"
    pid: int

    def finish(self) -> str:
        """Let it go on to its end; what it printed. It must end by itself, with exit status 0."""
        output, _ = self.process.communicate("go on\n", timeout=20)
        assert self.process.returncode == 0
        return output


def libraries() -> InjectionLibraries:
    """Those that are installed here."""
    return InjectionLibraries(injector=_file_of("pyinjector.injector"), code=_file_of("hypno.injection"))


def _file_of(module: str) -> Path:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)


@contextmanager
def asked(program: str, *, wrapper: Sequence[str] = (), python: str = INTERPRETER) -> Iterator[Asked]:
    """Run `program`, which prints "ready" when it may be asked; at the end it is killed."""
    process = subprocess.Popen(
        [*wrapper, python, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        pid = _python_below(process.pid)
        wait_until(lambda: _sleeps(pid), timeout_s=0.5)  # some never do
        yield Asked(process, pid)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _python_below(pid: int) -> int:
    """The process itself, or the innermost one that a wrapper such as `unshare --fork` has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return _python_below(int(children[0])) if children else pid


def _sleeps(pid: int) -> bool:
    return "State:\tS" in Path(f"/proc/{pid}/status").read_text()


def left_behind() -> set[str]:
    """Directories of live dumps on this machine."""
    places = (Path("/tmp"), Path("/dev/shm"), Path("/var/tmp"))
    return {str(path) for place in places for path in place.glob(f"{NAME_PREFIX}*")}


def guardians() -> set[int]:
    """Live dumps' own processes that run on this machine."""
    found = set()
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"live_dump_guardian" in command.read_bytes():
                found.add(int(command.parent.name))
        except OSError:
            continue
    return found


def wait_until(is_true: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Whether it comes true in time."""
    limit = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() >= limit:
            return False
        time.sleep(0.01)
    return True
