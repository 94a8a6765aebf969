"""Reading /proc, and why a process may not be looked into: on real processes, as far as this machine has the means."""

import ctypes
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ncclprobe.probe import proc
from tests.unit.probe.processes import LIBC, NOBODY, SLEEPER, in_child, running

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

PTRACE_SEIZE = 0x4206
CHANGES_ITS_USER = f"import os; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); {SLEEPER}"


class TestObstacle:
    def test_gone(self) -> None:
        process = subprocess.Popen(["true"])
        process.wait()
        assert proc.ptrace_obstacle(process.pid)[0] == "the process is gone"

    @needs_root
    def test_another_user(self) -> None:
        with running() as pid:
            why, action = in_child(lambda: proc.ptrace_obstacle(pid), user=NOBODY)
        assert why == f"the process belongs to another user (uid 0, we are uid {NOBODY})"
        assert "sudo" in action

    @needs_root
    @pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
    def test_capability_dropped(self) -> None:
        code = "import sys; from ncclprobe.probe import proc; print(*proc.ptrace_obstacle(int(sys.argv[1])), sep='|')"
        drop = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
        with running() as pid:
            said = subprocess.check_output([*drop, sys.executable, "-c", code, str(pid)], text=True, timeout=30)
        assert said.startswith("the capability CAP_SYS_PTRACE is missing|")
        assert "--cap-add SYS_PTRACE" in said

    @needs_root
    def test_a_tracer(self) -> None:
        def seize_and_ask() -> list[object]:
            assert LIBC.ptrace(PTRACE_SEIZE, ctypes.c_int(pid), None, None) == 0
            return [os.getpid(), *proc.ptrace_obstacle(pid)]

        with running() as pid:
            tracer, why, action = in_child(seize_and_ask)
        assert why == f"process {tracer} traces it already"
        assert str(tracer) in action

    @needs_root
    def test_protected_by_its_program(self) -> None:
        with running(CHANGES_ITS_USER) as pid:
            assert in_child(lambda: proc.environ(pid), user=NOBODY) is None
            why, _ = in_child(lambda: proc.ptrace_obstacle(pid), user=NOBODY)
        assert why.startswith("the process is protected")

    @pytest.mark.parametrize(
        ("own", "target", "scope", "why"),
        [
            ({"Uid": "5"}, {"Uid": "5"}, "1", "kernel.yama.ptrace_scope is 1"),
            ({"Uid": "5"}, {"Uid": "5"}, "2", "kernel.yama.ptrace_scope is 2"),
            ({"Uid": "0", "CapEff": "80000"}, {"Uid": "5"}, "3", "kernel.yama.ptrace_scope is 3: nobody may trace"),
            ({"Uid": "5", "Seccomp": "2"}, {"Uid": "5"}, "0", "a seccomp filter forbids it here"),
            ({"Uid": "5"}, {"Uid": "5", "CapPrm": "1"}, "0", "the process has capabilities that we lack"),
            (
                {"Uid": "0", "CapEff": "80000", "Seccomp": "2"},
                {"Uid": "5"},
                "1",
                "the kernel refuses it although CAP_SYS_PTRACE is there",
            ),
        ],
        ids=["yama-1", "yama-2", "yama-3", "seccomp", "capabilities", "sandbox"],
    )
    def test_what_this_machine_lacks(
        self, tmp_path: Path, own: dict[str, str], target: dict[str, str], scope: str, why: str
    ) -> None:
        for pid, fields in ((os.getpid(), own), (4_000_000, target)):
            (tmp_path / str(pid)).mkdir()
            text = "".join(f"{key}:\t{value}\n" for key, value in ({"TracerPid": "0"} | fields).items())
            (tmp_path / str(pid) / "status").write_text(text)
        (tmp_path / "sys/kernel/yama").mkdir(parents=True)
        (tmp_path / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
        assert proc.ptrace_obstacle(4_000_000, tmp_path)[0] == why


def test_a_name_with_blanks_and_parentheses_does_not_shift_the_fields(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a) R ((b c) S 1 " + " ".join(map(str, range(5, 53))) + "\n")
    fields = proc.stat(7, tmp_path)
    assert fields is not None
    assert fields[:2] == ["S", "1"]


def test_a_process_that_is_gone_has_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    pid = process.pid
    assert proc.stat(pid) is None
    assert proc.environ(pid) is None
    assert proc.start_ns(pid) is None
    assert proc.status(pid) == {}
    assert proc.link(pid, "exe") is None
    assert proc.thread_names(pid) == set()


def test_when_a_process_was_started() -> None:
    before = time.time_ns()
    with running() as pid:
        started = proc.start_ns(pid)
    assert started is not None
    assert abs(started - before) < 3 * 10**9


def test_the_environment_is_that_of_the_start() -> None:
    code = "import os; os.environ['RANK'] = '1'; " + SLEEPER
    with running(code, environ={"LATIN": "a\udce9=b"}) as pid:
        environ = proc.environ(pid)
    assert environ is not None
    assert "RANK" not in environ
    assert environ["LATIN"] == "a\ufffd=b"
