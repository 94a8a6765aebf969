"""py-spy on real processes: the stacks, or why there are none, in words for a person."""

import ctypes
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ncclprobe.parse import stacks
from ncclprobe.probe import pyspy
from ncclprobe.probe.pyspy import Dump
from tests.unit.probe.processes import LIBC, in_child, running

FOUND = Path(sys.executable).with_name("py-spy")
PY_SPY = FOUND if FOUND.exists() else Path(shutil.which("py-spy") or "py-spy")

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
EPERM, ENOSYS = 1, 38
# process_vm_readv and ptrace
SYSTEM_CALLS = {"x86_64": (310, 101), "aarch64": (270, 117)}


@pytest.fixture
def fake_spy(tmp_path: Path) -> Path:
    """A py-spy of ours; the test writes it."""
    return tmp_path / "py-spy"


def write(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def look(pid: int, *, blocking: bool = False, program: Path = PY_SPY, timeout_s: float = 20) -> Dump:
    return pyspy.dump(program, pid, blocking_first=blocking, native=False, timeout_s=timeout_s)


@pytest.mark.parametrize("blocking", [False, True])
def test_the_stack_of_a_process(blocking: bool) -> None:
    with running("def wait():\n import time; print('ready', flush=True); time.sleep(600)\nwait()") as pid:
        dump = look(pid, blocking=blocking)
    assert dump.is_good
    (parsed,) = stacks.parse(dump.output).records
    assert parsed.main
    assert parsed.main.stack[0].function == "wait"
    assert dump.origin.startswith("py-spy dump --json --pid")
    assert (dump.pause_s > 0) is blocking
    assert dump.start_ns < dump.end_ns


def test_a_failed_try_is_repeated_and_the_last_one_stops_the_process(fake_spy: Path, tmp_path: Path) -> None:
    write(
        fake_spy, f'echo "$*" >>{tmp_path}/calls; case "$*" in *nonblocking*) echo torn >&2; exit 1;; esac; echo "[]"'
    )
    dump = look(os.getpid(), program=fake_spy)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert dump.is_good
    assert ["--nonblocking" in call for call in calls] == [True, True, True, False]
    assert dump.pause_s > 0


@pytest.mark.parametrize("error", ["Permission Denied: Try sudo", "Operation not permitted (os error 1)"])
def test_a_refusal_is_not_repeated(fake_spy: Path, tmp_path: Path, error: str) -> None:
    write(fake_spy, f'echo x >>{tmp_path}/calls; echo "{error}" >&2; exit 1')
    assert look(os.getpid(), program=fake_spy).is_refused
    assert (tmp_path / "calls").read_text() == "x\n"


def test_one_that_hangs_is_ended_and_not_tried_again(fake_spy: Path) -> None:
    write(fake_spy, "exec sleep 600")
    begin = time.monotonic()
    dump = look(os.getpid(), program=fake_spy, timeout_s=0.3)
    assert time.monotonic() - begin < 3
    assert "did not answer in time" in pyspy.why_not(dump, os.getpid())[0]


def test_a_program_that_cannot_be_run_is_not_taken_for_a_refusal(fake_spy: Path) -> None:
    fake_spy.write_text("#!/bin/sh\n")
    why, action = pyspy.why_not(look(os.getpid(), program=fake_spy), os.getpid())
    assert why == "py-spy cannot be run: Permission denied"
    assert "noexec" in action


def test_a_process_that_is_gone() -> None:
    with running() as pid:
        pass
    assert pyspy.why_not(look(pid), pid)[0] == "the process is gone"


def test_a_process_that_is_no_python() -> None:
    with running("echo ready; exec sleep 600", command=("/bin/sh", "-c")) as pid:
        why, _ = pyspy.why_not(look(pid), pid)
    assert why.startswith("py-spy failed: ")
    assert "python version" in why


def test_a_process_that_is_stopped_can_be_read_but_not_stopped_again() -> None:
    with running() as pid:
        os.kill(pid, signal.SIGSTOP)
        assert look(pid).is_good
        dump = look(pid, blocking=True)
        if not dump.is_good:
            assert pyspy.why_not(dump, pid) == ("the process is stopped", f"let it go on first: kill -CONT {pid}")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_without_the_capability(tmp_path: Path) -> None:
    wrapper = tmp_path / "py-spy"
    write(wrapper, f'exec setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace {PY_SPY} "$@"')
    with running() as pid:
        dump = look(pid, program=wrapper)
    assert dump.is_refused
    assert not dump.is_good


@pytest.mark.skipif(platform.machine() not in SYSTEM_CALLS, reason="system call numbers unknown")
@pytest.mark.parametrize(
    ("answer", "word"),
    [(EPERM, ("although CAP_SYS_PTRACE is there", "a seccomp filter forbids it")), (ENOSYS, ("sandbox",))],
    ids=["EPERM", "ENOSYS"],
)
def test_in_a_sandbox(answer: int, word: tuple[str, ...]) -> None:
    def sandboxed() -> list[str]:
        forbid(SYSTEM_CALLS[platform.machine()], answer)
        return list(pyspy.why_not(look(pid, blocking=True), pid))

    with running() as pid:
        why, action = in_child(sandboxed)
    assert any(one in why for one in word), why
    assert "container's host" in action


def forbid(numbers: tuple[int, ...], answer: int) -> None:
    """Installs a seccomp filter (a classic BPF program) that answers these system calls with an error."""
    load_number = (0x20, 0, 0, 0)
    jumps = [(0x15, len(numbers) - place - 1 + 1, 0, number) for place, number in enumerate(numbers)]
    allow, refuse = (0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | answer)
    program = b"".join(struct.pack("HBBI", *line) for line in [load_number, *jumps, allow, refuse])
    code = ctypes.create_string_buffer(program)
    length = 3 + len(numbers)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", length, ctypes.addressof(code)))
    assert LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_void_p(ctypes.addressof(header))) == 0


def test_the_kit_goes_before_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert pyspy.find(tmp_path) is None
    (tmp_path / "bin").mkdir()
    write(tmp_path / "bin" / "py-spy", "")
    assert pyspy.find(tmp_path) == tmp_path / "bin" / "py-spy"
    write(tmp_path / "py-spy", "")
    assert pyspy.find(tmp_path) == tmp_path / "py-spy"


def test_py_spy_comes_with_the_project() -> None:
    assert subprocess.check_output([PY_SPY, "--version"]).startswith(b"py-spy")
