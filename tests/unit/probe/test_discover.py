"""Discovery on real processes, and the words for what it could not see."""

import os
import sys
from pathlib import Path

import pytest

from ncclprobe.model.evidence import Gap
from ncclprobe.model.job import JobProcess
from ncclprobe.probe import scan as scan_module
from ncclprobe.probe.discover import discover
from tests.unit.probe.fake_proc import FakeProc, torchrun_environ
from tests.unit.probe.processes import NOBODY, SLEEPER, in_child, is_gone, running, wait_until

OWN_PID = 999_999

# A rank that forks a worker, which forks another; says their pids; `die` as argument: leaves them behind.
FAMILY = """
import os, sys, time
read_fd, write_fd = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.write(write_fd, b"x")
        time.sleep(600)
    time.sleep(600)
os.read(read_fd, 1)
print("ready", flush=True)
if "die" in sys.argv:
    os.kill(os.getpid(), 9)
time.sleep(600)
"""


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def environ(rank: int, run_id: str) -> dict[str, str]:
    return torchrun_environ(rank, size=2, TORCHELASTIC_RUN_ID=run_id)


def of_job(run_id: str) -> list[JobProcess]:
    return [process for process in discover("node1", OWN_PID).processes if process.job.run_id == run_id]


class TestRealProcesses:
    def test_a_rank_and_what_it_forked(self) -> None:
        with running(FAMILY, environ=environ(1, "family")) as pid:
            found = of_job("family")
            rank = next(process for process in found if process.role == "rank")
            assert (rank.pid, rank.rank, rank.local_rank, rank.world_size) == (pid, 1, 1, 2)
            assert [process.rank for process in found if process.role == "child"] == [1, 1]
            assert [process.pid for process in found if process.role == "launcher"] == [os.getpid()]

    def test_orphans_of_a_rank_that_died_while_another_lives(self) -> None:
        with (
            running(SLEEPER, environ=environ(0, "half")),
            running(
                f"import sys; sys.argv.append('die'); {FAMILY!s}".replace("; \n", "\n"), environ=environ(1, "half")
            ) as dead,
        ):
            wait_until(lambda: is_gone(dead), "the rank has died")
            found = of_job("half")
            assert [process.rank for process in found if process.role == "rank"] == [0]
            assert [process.rank for process in found if process.role == "child"] == [1, 1]
            gaps = [gap for gap in discover("node1", OWN_PID).gaps if gap.who == "rank 1"]
            assert [gap.what for gap in gaps] == ["its process is gone"]

    def test_bash_around_the_rank(self) -> None:
        shell = ("/bin/bash", "-c", f'"{sys.executable}" -c "$0"; true')
        with running(SLEEPER, environ=environ(0, "wrapped"), command=shell) as bash:
            found = {process.pid: str(process.role) for process in of_job("wrapped")}
            assert found.pop(bash) == "launcher"
            assert sorted(found.values()) == ["launcher", "rank"]

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
    def test_a_job_of_another_user_is_a_gap_that_says_whose(self) -> None:
        with running(SLEEPER, environ=environ(0, "roots")):
            (first, *_) = in_child(
                lambda: [[g.what, g.why, g.action] for g in discover("n", OWN_PID).gaps], user=NOBODY
            )
        what, why, action = first
        assert what == "no rank of a distributed job"
        assert f"the process belongs to another user (uid 0, we are uid {NOBODY})" in why
        assert "Python process" in why
        assert "root" in action


def gaps(fake: FakeProc) -> list[Gap]:
    return list(discover("node1", OWN_PID, fake.root).gaps)


class TestGaps:
    def test_no_rank(self, fake: FakeProc) -> None:
        (gap,) = gaps(fake)
        assert (gap.who, gap.what) == ("node1", "no rank of a distributed job")
        assert "RANK, SLURM_PROCID" in gap.why
        assert gap.action == "check that the job runs on this host"

    def test_a_job_of_mp_spawn_shows_no_rank_and_the_gap_says_so(self, fake: FakeProc) -> None:
        fake.add(10, environ={"PATH": "/bin"}, has_torch=True)
        fake.add(11, parent=10, environ={"PATH": "/bin"}, has_torch=True)
        fake.add(12, environ={"PATH": "/bin"})
        (gap,) = gaps(fake)
        assert "pids 10, 11 run torch without it" in gap.why
        assert "torch.multiprocessing.spawn" in gap.why
        assert "torchrun" in gap.action

    def test_processes_that_may_not_be_read(self, fake: FakeProc) -> None:
        for pid in (10, 11):
            fake.add(pid, uid=4_321)
            fake.hide_environ(pid)
        fake.add(os.getpid(), arguments=["python"], uid=1000)
        (gap,) = gaps(fake)
        assert "2 Python processes could not be looked into" in gap.why
        assert "uid 4321, we are uid 1000" in gap.why

    def test_ranks_may_be_missing_only_where_some_are_not_there(self, fake: FakeProc) -> None:
        fake.add(10, environ=torchrun_environ(0, size=2))
        fake.add(20)
        fake.hide_environ(20)
        assert [gap.what for gap in gaps(fake)] == ["ranks may be missing"]
        fake.add(11, environ=torchrun_environ(1, size=2))
        assert gaps(fake) == []

    def test_one_that_blocks_is_named_as_a_suspect(self, fake: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(scan_module, "_PATIENCE_S", 0.1)
        fake.add(10, environ=torchrun_environ(0, size=2))
        fake.add(11, environ=torchrun_environ(1, size=2), state="D")
        fake.block_environ(11)
        (gap,) = gaps(fake)
        assert gap.what == "process 11 (python) could not be looked into"
        assert "state D" in gap.why
        assert "first suspect" in gap.action

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
    def test_a_proc_that_hides_the_others(self, fake: FakeProc) -> None:
        folder = fake.root / str(os.getpid())
        folder.mkdir()
        (folder / "mounts").write_text("proc /proc proc rw,hidepid=2 0 0\n")

        def ask() -> list[str]:
            (fake.root / str(os.getpid())).symlink_to(folder.name)
            os.setuid(NOBODY)
            return [gap.why for gap in gaps(fake)]

        fake.root.chmod(0o755)
        for parent in fake.root.parents:
            if parent.name.startswith("pytest"):
                parent.chmod(0o755)
        (why,) = in_child(ask)
        assert "/proc hides other users' processes" in why
