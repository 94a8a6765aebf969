"""The reproducers under real torchrun: they hang as real jobs do, the repaired ones end, and nothing is left behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from ncclprobe.rehearsal import Asked, Way, rehearse
from ncclprobe.repro import memory_cgroup, needs
from ncclprobe.repro.catalog import find
from ncclprobe.repro.job import Job
from ncclprobe.repro.launch import launch
from ncclprobe.repro.reproducer import JobState, Repro
from ncclprobe.repro.supervisor import processes_of
from ncclprobe.repro.truth import truth_of

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_spec("torch") is None and not os.environ.get("CI"), reason="needs torch"),
]

REPRO = find("mismatched-logging")

# A rank that costs nothing: no torch, and a child in a session of its own, which a kill of the rank does not reach.
LIGHT_RANK = """
import subprocess, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("step 1 loss 0", flush=True)
time.sleep(600)
"""

# What `ncclprobe repro` does, in a process that can be killed: start, wait until stuck, say who runs, stay.
ASKER = """
import sys, time
from dataclasses import replace
from ncclprobe.repro.catalog import find
from ncclprobe.repro.launch import launch
from ncclprobe.repro.supervisor import processes_of
repro = replace(find(sys.argv[3]), program=sys.argv[1])
with launch(repro, ranks=max(2, repro.hosts), at_step=1) as job:
    assert job.wait_until_stuck(60) == "stuck", job.logs.failure()
    print(job.launcher_pid, job._supervisor.pid, *processes_of(job.run_id), flush=True)
    if sys.argv[2] == "fail":
        raise ValueError("planned")
    time.sleep(600)
"""


def wait_until_gone(pids: set[int], timeout_s: float = 20.0) -> None:
    """Gone means reaped: a zombie is something left behind, too."""
    deadline = time.monotonic() + timeout_s
    while left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)


def listening_ports() -> dict[str, str]:
    """Socket inode -> local address, of every TCP socket that listens on this machine."""
    lines = [line for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    fields = (line.split() for line in lines)
    return {row[9]: row[1] for row in fields if row[3] == "0A"}


def sockets_of(pids: set[int]) -> set[str]:
    """Inodes of the sockets that these processes hold."""
    links = [os.readlink(fd) for pid in pids for fd in Path(f"/proc/{pid}/fd").iterdir()]
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where all temporary files of the test must go, and be gone from."""
    directory = tmp_path / "t"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr("tempfile.tempdir", None)
    return directory


@pytest.fixture(scope="class")
def job() -> Iterator[Job]:
    """The demo on four ranks, stuck; shared, because starting it takes seconds."""
    with launch(REPRO, ranks=4, at_step=30) as job:
        assert job.wait_until_stuck(timeout_s=90) is JobState.STUCK, job.logs.failure()
        yield job


class TestMismatchedLogging:
    def test_every_rank_has_finished_the_step_and_lives(self, job: Job) -> None:
        assert job.logs.steps() == dict.fromkeys(range(4), 30)
        assert sorted(job.pids) == [0, 1, 2, 3]
        assert job.wait(timeout_s=0) is None

    def test_no_rank_uses_the_cpu_any_more(self, job: Job) -> None:
        before = {rank: cpu_ticks(pid) for rank, pid in job.pids.items()}
        time.sleep(1)
        assert all(cpu_ticks(pid) - before[rank] <= 3 for rank, pid in job.pids.items())

    def test_rank_0_waits_in_the_planted_line_and_the_others_in_their_next_backward(self, job: Job) -> None:
        py_spy = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        assert py_spy, "py-spy comes with ncclprobe"
        stacks = {
            rank: subprocess.check_output([py_spy, "dump", "--nonblocking", f"--pid={pid}"], text=True, timeout=30)
            for rank, pid in job.pids.items()
        }
        truth = truth_of(REPRO, 4)
        assert f"{truth.function} ({truth.place})" in stacks[0]
        assert "all_gather (" in stacks[0]
        for rank in (1, 2, 3):
            assert "backward (" in stacks[rank]
            assert truth.place not in stacks[rank]

    def test_the_output_of_a_rank_is_a_file_that_it_holds_open(self, job: Job) -> None:
        assert os.readlink(f"/proc/{job.pids[1]}/fd/1").startswith(str(job.directory))
        assert job.logs.stdout(1).startswith("step 1 loss ")

    def test_its_program_is_user_code_wherever_ncclprobe_is_installed(self, job: Job) -> None:
        command = Path(f"/proc/{job.pids[0]}/cmdline").read_text().split("\0")
        assert str(job.directory / "mismatched_logging.py") in command

    def test_no_socket_listens_beyond_the_loopback_and_none_after_the_end(self, job: Job) -> None:
        pids = set(processes_of(job.run_id))
        mine = {inode: address for inode, address in listening_ports().items() if inode in sockets_of(pids)}
        assert mine
        job.stop()
        assert not set(mine) & set(listening_ports())
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        assert not job.directory.exists()


def test_the_fixed_program_runs_to_its_end(temporary: Path) -> None:
    with launch(REPRO, ranks=2, at_step=20, fixed=True) as job:
        assert job.wait(timeout_s=90) == 0, job.logs.failure()
        assert job.logs.steps() == {0: 120, 1: 120}
        assert "step 20 mean loss over all ranks" in job.logs.stdout(0)
        assert "mean loss" not in job.logs.stdout(1)
        assert not processes_of(job.run_id)
    assert not list(temporary.iterdir())


def test_a_backend_that_cannot_work_is_a_failure_with_a_reason(temporary: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    with launch(REPRO, ranks=2, backend="nccl") as job:
        assert job.wait_until_stuck(timeout_s=90) is JobState.ENDED
        assert job.wait() != 0
        assert job.logs.failure().startswith("rank 0: ")
    assert not list(temporary.iterdir())


@contextmanager
def asking(folder: Path, end: str | signal.Signals, name: str) -> "Iterator[tuple[subprocess.Popen[str], list[int]]]":
    """A process that has started a light job, and the pids of all that belongs to it."""
    program = folder / "light.py"
    program.write_text(LIGHT_RANK)
    asker = subprocess.Popen(
        [sys.executable, "-c", ASKER, str(program), str(end), name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert asker.stdout
        yield asker, [int(pid) for pid in asker.stdout.readline().split()]
    finally:
        asker.kill()
        asker.wait()
        asker.stdout.close()


@pytest.mark.parametrize(
    ("end", "victims"),
    [
        ("fail", ()),
        (signal.SIGINT, ("asker",)),
        (signal.SIGTERM, ("asker",)),
        (signal.SIGKILL, ("asker",)),
        (signal.SIGKILL, ("torchrun", "asker")),
    ],
    ids=["exception", "SIGINT", "SIGTERM", "SIGKILL", "SIGKILL-torchrun-too"],
)
def test_nothing_is_left_however_the_asker_ends(
    end: str | signal.Signals, victims: tuple[str, ...], tmp_path: Path, temporary: Path
) -> None:
    with asking(tmp_path, end, "mismatched-logging") as (asker, pids):
        assert len(set(pids)) == 6, "torchrun, the supervisor, two ranks, and a child of each"
        assert len(list(temporary.iterdir())) == 1
        for victim in victims:
            os.kill(asker.pid if victim == "asker" else pids[0], int(end))
        asker.wait(timeout=30)
        wait_until_gone(set(pids))
        assert not list(temporary.iterdir())


def test_when_torchrun_is_killed_the_job_has_ended_and_its_logs_can_be_read(tmp_path: Path, temporary: Path) -> None:
    program = tmp_path / "light.py"
    program.write_text(LIGHT_RANK)
    with launch(replace(REPRO, program=str(program)), ranks=2, at_step=1) as job:
        assert job.wait_until_stuck(timeout_s=60) is JobState.STUCK
        pids = set(processes_of(job.run_id))
        assert len(pids) == 5
        os.kill(job.launcher_pid, signal.SIGKILL)
        assert job.wait(timeout_s=20) == -signal.SIGKILL
        assert not processes_of(job.run_id)
        assert job.logs.stdout(0) == "step 1 loss 0\n"
    wait_until_gone(pids)
    assert not list(temporary.iterdir())


def mounts() -> list[str]:
    return sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())


def links() -> list[str]:
    """This machine's own; others that use namespaces at this moment make and remove links of other names."""
    return [
        path.name for path in Path("/sys/class/net").iterdir() if "node" in path.name or path.name.startswith("to-")
    ]


# One of torchrun and one of plain processes: CI runs all of them after the tests, `make repros` in every way.
ALWAYS = ("lock-held", "crashed")


def require(repro: Repro) -> None:
    """Skips what this machine cannot do."""
    missing = needs.missing(repro)
    if missing:
        pytest.skip(missing[0])


@pytest.mark.parametrize(
    ("name", "end"),
    [("crashed", "fail"), ("crashed", signal.SIGINT), ("oom-killed", signal.SIGKILL), ("host-lost", signal.SIGKILL)],
)
def test_nothing_is_left_of_plain_jobs_cgroups_and_hosts(
    name: str, end: str | signal.Signals, tmp_path: Path, temporary: Path
) -> None:
    require(find(name))
    before = mounts()
    with asking(tmp_path, end, name) as (asker, pids):
        assert len(pids) > 4
        if isinstance(end, signal.Signals):
            asker.send_signal(end)
        asker.wait(timeout=30)
        wait_until_gone(set(pids))
        assert not list(temporary.iterdir())
        assert (mounts(), links()) == (before, [])
        root = memory_cgroup.root()
        assert not root or not [path for path in root.glob("ncclprobe-*") if path.name.endswith(f".{asker.pid}")]


@pytest.mark.parametrize("repro", [find(name) for name in ALWAYS], ids=lambda repro: repro.name)
def test_the_cause_is_found(repro: Repro, temporary: Path) -> None:
    require(repro)
    (result,) = rehearse([repro], (Way.LIVE,), Asked(at_step=5), lambda result: None)
    assert result.is_right, result.reason
    assert result.seconds is not None
    assert result.seconds < 60
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("name", ["mismatched-logging"])
def test_without_dumps_and_from_the_bundle_the_same_rank_is_found(name: str, temporary: Path) -> None:
    results = list(rehearse([find(name)], (Way.STACKS, Way.BUNDLE), Asked(at_step=5), lambda result: None))
    assert [result.way for result in results] == [Way.STACKS, Way.BUNDLE]
    assert all(result.is_right for result in results), [result.reason for result in results]
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("name", ["exited-early"])
def test_the_repaired_job_ends_well(name: str, temporary: Path) -> None:
    require(find(name))
    with launch(find(name), ranks=3, at_step=5, fixed=True) as job:
        assert job.wait(timeout_s=120) == 0, job.logs.failure()
    assert not list(temporary.iterdir())
