"""The job's parent leaves no process and no file, however its asker ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from ncclprobe.repro import supervisor

# Stands for torchrun: starts a rank in a session of its own, which has a child, and waits.
FAMILY = """
import subprocess, sys, time
print("out")
rank = "import subprocess, time; subprocess.Popen(['sleep', '600'], start_new_session=True); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", rank], start_new_session=True)
time.sleep(600)
"""


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def wait_for(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


@pytest.fixture
def token(tmp_path: Path) -> Iterator[str]:
    token = f"test-{uuid4().hex}"
    yield token
    supervisor.kill_all(token)
    supervisor.remove_files(str(tmp_path / "job"), token)


class Supervised:
    def __init__(self, tmp_path: Path, token: str, code: str, cgroups: dict[str, dict[str, str]] | None = None) -> None:
        self.directory = tmp_path / "job"
        self.token = token
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        argv = [sys.executable, str(self.directory / "train.py")]
        request = supervisor.Request(
            directory=str(self.directory),
            files={"train.py": code},
            argv=argv,
            token=token,
            log="launcher.log",
            cgroups=cgroups or {},
            follow=[],
        )
        assert self.process.stdin
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def family(self) -> list[int]:
        """The pids of torchrun's stand-in, the rank, and the rank's child."""
        wait_for(lambda: len(supervisor.processes_of(self.token)) == 3)
        return list(supervisor.processes_of(self.token))

    def end_of_file(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.end_of_file()
            self.process.wait(timeout=20)
        assert self.process.stdout
        self.process.stdout.close()


def test_processes_are_told_by_the_exact_token(token: str) -> None:
    sleeps = [
        subprocess.Popen(["sleep", "600"], env={supervisor.TOKEN_VARIABLE: value, "RANK": "0"})
        for value in (token, token + "1", token[:-1])
    ]
    try:
        wait_for(lambda: supervisor.processes_of(token))
        assert list(supervisor.processes_of(token)) == [sleeps[0].pid]
        assert supervisor.processes_of(token)[sleeps[0].pid]["RANK"] == "0"
        supervisor.kill_all(token)
        assert sleeps[0].wait(timeout=5) == -signal.SIGKILL
        assert [sleep.poll() for sleep in sleeps[1:]] == [None, None]
    finally:
        for sleep in sleeps:
            sleep.kill()
            sleep.wait()


def test_a_data_loader_finds_room_for_its_socket_however_long_the_directory(tmp_path: Path, token: str) -> None:
    folder = tmp_path / ("d" * 100)
    folder.mkdir()
    bind = "import socket, sys, tempfile; own = tempfile.mkdtemp(prefix='pymp-'); print(own)\n"
    bind += "socket.socket(socket.AF_UNIX).bind(tempfile.mktemp(prefix='listener-4194304-10-', dir=own))"
    job = Supervised(folder, token, bind)
    temporary = Path(supervisor.temporary_directory(str(job.directory), token))
    assert job.line().isdigit()
    assert job.line() == "0", (job.directory / "launcher.log").read_text()
    assert Path((job.directory / "launcher.log").read_text().strip()).parent == temporary
    assert temporary.stat().st_mode & 0o777 == 0o700
    job.close()
    assert not temporary.exists()
    assert not job.directory.exists()


def test_the_temporary_files_of_a_job_are_with_its_others_where_that_is_possible() -> None:
    assert supervisor.temporary_directory("/tmp/ncclprobe-demo-1", "demo-1") == "/tmp/ncclprobe-demo-1/tmp"


def test_the_parent_of_a_process() -> None:
    assert supervisor.parent_of(os.getpid()) == os.getppid()
    assert supervisor.parent_of(2**22 + 1) is None


@pytest.mark.parametrize("end", ["end of file", signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_is_left_after(end: str | signal.Signals, tmp_path: Path, token: str) -> None:
    job = Supervised(tmp_path, token, FAMILY)
    assert int(job.line()) in job.family()
    family = job.family()
    assert job.directory.stat().st_mode & 0o777 == 0o700
    if isinstance(end, signal.Signals):
        job.process.send_signal(end)
    else:
        job.end_of_file()
    job.process.wait(timeout=20)
    assert not job.directory.exists()
    assert all(map(is_gone, family))
    job.close()


def test_when_torchrun_is_killed_its_ranks_go_and_its_files_stay_until_the_end(tmp_path: Path, token: str) -> None:
    job = Supervised(tmp_path, token, FAMILY)
    torchrun, family = int(job.line()), job.family()
    os.kill(torchrun, signal.SIGKILL)
    assert job.line() == str(-signal.SIGKILL)
    assert not supervisor.processes_of(token)
    assert (job.directory / "launcher.log").exists()
    job.close()
    assert all(map(is_gone, family))
    assert not job.directory.exists()


def test_the_exit_status_is_told(tmp_path: Path, token: str) -> None:
    job = Supervised(tmp_path, token, "import sys; sys.exit(3)")
    job.line()
    assert job.line() == "3"
    job.close()


def test_when_the_supervisor_is_killed_torchrun_is_told_to_end(tmp_path: Path, token: str) -> None:
    job = Supervised(tmp_path, token, "import time; time.sleep(600)")
    torchrun = int(job.line())
    job.process.kill()
    job.process.wait()
    wait_for(lambda: is_gone(torchrun))
    job.close()


def test_a_directory_that_is_taken_is_refused_and_left_alone(tmp_path: Path, token: str) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "precious").touch()
    job = Supervised(tmp_path, token, FAMILY)
    assert "File exists" in job.line()
    job.process.wait(timeout=20)
    assert (tmp_path / "job" / "precious").exists()
    job.close()


def test_temporary_files_of_the_job_go_with_it(tmp_path: Path, token: str) -> None:
    job = Supervised(tmp_path, token, "import tempfile; print(tempfile.mkdtemp())")
    job.line()
    assert job.line() == "0"
    made = Path((job.directory / "launcher.log").read_text().strip())
    assert made.parent == Path(supervisor.temporary_directory(str(job.directory), token))
    job.close()
    assert not made.exists()


def test_cgroups_are_made_and_removed(tmp_path: Path, token: str) -> None:
    cgroup = tmp_path / "cgroup"
    job = Supervised(tmp_path, token, "import time; time.sleep(600)", {str(cgroup): {}})
    job.line()
    assert cgroup.is_dir()
    job.close()
    assert not cgroup.exists()


def test_a_cgroup_that_cannot_be_made_starts_no_job(tmp_path: Path, token: str) -> None:
    job = Supervised(tmp_path, token, FAMILY, {str(tmp_path / "no" / "such"): {}})
    assert "No such file" in job.line()
    job.process.wait(timeout=20)
    assert not job.directory.exists()
    assert not supervisor.processes_of(token)
    job.close()
