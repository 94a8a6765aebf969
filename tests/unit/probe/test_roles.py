"""Which process is a rank, which a child, which a launcher, in the trees that launchers make."""

import os
from pathlib import Path

import pytest

from ncclprobe.model.job import JobProcess, Role
from ncclprobe.probe.discover import discover
from tests.unit.probe.fake_proc import FakeProc, torchrun_environ

OWN_PID = 999_999
TORCHRUN = ["/opt/bin/python", "/opt/bin/torchrun", "train.py"]
FORKED = ["/opt/bin/python", "train.py"]


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def roles(fake: FakeProc, own_pid: int = OWN_PID) -> dict[int, tuple[str, int | None]]:
    return {p.pid: (str(p.role), p.rank) for p in processes(fake, own_pid)}


def processes(fake: FakeProc, own_pid: int = OWN_PID) -> tuple[JobProcess, ...]:
    return discover("node1", own_pid, fake.root).processes


def add_torchrun(fake: FakeProc, pid: int = 100, ranks: int = 2, parent: int = 1, **more: str) -> list[int]:
    """A torchrun and its ranks, whose pids follow."""
    fake.add(pid, parent=parent, arguments=TORCHRUN)
    pids = range(pid + 1, pid + 1 + ranks)
    return [
        fake.add(rank_pid, parent=pid, environ=torchrun_environ(rank, size=ranks, **more), has_torch=True)
        for rank, rank_pid in enumerate(pids)
    ]


def test_torchrun(fake: FakeProc) -> None:
    add_torchrun(fake)
    assert roles(fake) == {101: ("rank", 0), 102: ("rank", 1), 100: ("launcher", None)}
    first = processes(fake)[0]
    assert (first.local_rank, first.world_size, first.parent_pid) == (0, 2, 100)
    assert str(first.job) == "run1 node1:29500"


def test_workers_and_their_children_belong_to_their_rank(fake: FakeProc) -> None:
    add_torchrun(fake)
    fake.add(110, parent=101, arguments=FORKED, environ=torchrun_environ(0))
    fake.add(111, parent=110, arguments=FORKED, environ=torchrun_environ(0))
    tracker = ["python", "-c", "from multiprocessing.resource_tracker import main;main(8)"]
    fake.add(112, parent=102, arguments=tracker, environ=torchrun_environ(1))
    fake.add(113, parent=102, arguments=["wandb-core"], environ=torchrun_environ(1))
    fake.add(114, parent=102, arguments=["bash", "-c", "sleep 1"], environ=torchrun_environ(1))
    found = roles(fake)
    assert [found[pid] for pid in (110, 111, 112)] == [("child", 0), ("child", 0), ("child", 1)]
    assert not {113, 114} & set(found)


def test_a_shell_around_the_rank_is_a_launcher(fake: FakeProc) -> None:
    fake.add(100, arguments=TORCHRUN)
    fake.add(101, parent=100, arguments=["bash", "-c", "python train.py"], environ=torchrun_environ(0))
    fake.add(102, parent=101, environ=torchrun_environ(0))
    assert roles(fake) == {102: ("rank", 0), 101: ("launcher", None), 100: ("launcher", None)}


def test_a_python_wrapper_without_torch_is_no_rank(fake: FakeProc) -> None:
    fake.add(100, arguments=TORCHRUN)
    fake.add(101, parent=100, arguments=["python", "wrap.py"], environ=torchrun_environ(0))
    fake.add(102, parent=101, environ=torchrun_environ(0), has_torch=True)
    assert roles(fake)[102] == ("rank", 0)
    assert roles(fake)[101] == ("launcher", None)


def srun_environ(task: int, **more: str) -> dict[str, str]:
    return {"SLURM_PROCID": str(task), "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", **more}


def test_srun_python(fake: FakeProc) -> None:
    fake.add(100, arguments=["slurmstepd:", "[77.0]"], uid=0)
    for task in (0, 1):
        fake.add(101 + task, parent=100, environ=srun_environ(task))
    assert roles(fake) == {101: ("rank", 0), 102: ("rank", 1), 100: ("launcher", None)}
    assert str(processes(fake)[0].job) == "slurm:77.0"


@pytest.mark.parametrize("node", [0, 1])
def test_srun_torchrun_which_has_a_task_number_of_its_own(fake: FakeProc, node: int) -> None:
    fake.add(100, arguments=["slurmstepd:", "[77.0]"], uid=0)
    fake.add(101, parent=100, arguments=["bash", "-c", "torchrun train.py"], environ=srun_environ(node))
    fake.add(102, parent=101, arguments=TORCHRUN, environ=srun_environ(node))
    for local in (0, 1):
        environ = srun_environ(node) | torchrun_environ(2 * node + local, local, 4)
        fake.add(103 + local, parent=102, environ=environ)
    assert roles(fake) == {103: ("rank", 2 * node), 104: ("rank", 2 * node + 1), 102: ("launcher", None)}


def test_srun_torchrun_of_one_process_a_node(fake: FakeProc) -> None:
    fake.add(102, arguments=TORCHRUN, environ=srun_environ(3), has_torch=True)
    fake.add(103, parent=102, environ=srun_environ(3) | torchrun_environ(3, 0, 4), has_torch=True)
    assert roles(fake) == {103: ("rank", 3), 102: ("launcher", None)}


@pytest.mark.parametrize("node", [0, 1])
def test_a_pod_whose_rank_is_its_node(fake: FakeProc, node: int) -> None:
    pod = {"RANK": str(node), "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}
    fake.add(100, arguments=TORCHRUN, environ=pod, has_torch=True)
    for local in (0, 1):
        fake.add(101 + local, parent=100, environ=pod | torchrun_environ(2 * node + local, local, 4), has_torch=True)
    assert roles(fake) == {101: ("rank", 2 * node), 102: ("rank", 2 * node + 1), 100: ("launcher", None)}
    assert len({process.job for process in processes(fake)}) == 1


def test_a_rank_that_sets_rank_for_what_it_starts_is_still_the_rank(fake: FakeProc) -> None:
    """Lightning and submitit set RANK inside the process: only programs that it starts show it."""
    fake.add(100, arguments=["slurmstepd:", "[77.0]"], uid=0)
    fake.add(101, parent=100, environ=srun_environ(1), has_torch=True)
    own = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    fake.add(102, parent=101, arguments=["python", "-m", "wandb.service"], environ=srun_environ(1) | own)
    fake.add(103, parent=101, arguments=FORKED, environ=srun_environ(1))
    assert roles(fake) == {101: ("rank", 1), 102: ("child", 1), 103: ("child", 1), 100: ("launcher", None)}


def test_a_shell_of_the_user_in_the_slurm_job_has_no_ranks(fake: FakeProc) -> None:
    add_torchrun(fake, SLURM_JOB_ID="77", SLURM_PROCID="0")
    fake.add(200, arguments=["bash"], environ=srun_environ(0, SLURM_STEP_ID="1"))
    fake.add(201, parent=200, arguments=["python", "/usr/bin/nvitop"], environ=srun_environ(0, SLURM_STEP_ID="1"))
    assert sorted(pid for pid, (role, _) in roles(fake).items() if role == "rank") == [101, 102]


def test_mpirun(fake: FakeProc) -> None:
    fake.add(100, arguments=["mpirun", "-np", "2", "python", "train.py"])
    for rank in (0, 1):
        fake.add(101 + rank, parent=100, environ={"OMPI_COMM_WORLD_RANK": str(rank), "PMIX_NAMESPACE": "ns-1"})
    assert roles(fake) == {101: ("rank", 0), 102: ("rank", 1), 100: ("launcher", None)}


def test_two_jobs_on_one_host(fake: FakeProc) -> None:
    add_torchrun(fake)
    add_torchrun(fake, pid=200, TORCHELASTIC_RUN_ID="run2")
    ranks = [process for process in processes(fake) if process.role is Role.RANK]
    assert {str(rank.job): [r.pid for r in ranks if r.job == rank.job] for rank in ranks} == {
        "run1 node1:29500": [101, 102],
        "run2 node1:29500": [201, 202],
    }


def test_two_containers_with_a_localhost_of_their_own_are_two_jobs(fake: FakeProc) -> None:
    local = {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "none"}
    add_torchrun(fake, **local)
    add_torchrun(fake, pid=200, **local)
    jobs = {process.pid: process.job for process in processes(fake) if process.role is Role.RANK}
    assert jobs[101] == jobs[102] != jobs[201] == jobs[202]
    assert str(jobs[101]) == "@100 127.0.0.1:29500"


def test_one_job_in_two_containers_is_one_job(fake: FakeProc) -> None:
    for container in (0, 1):
        shim, launcher = 100 + 100 * container, 101 + 100 * container
        fake.add(shim, arguments=["containerd-shim"])
        fake.add(launcher, parent=shim, arguments=TORCHRUN, inner_pid=1)
        for local in (0, 1):
            environ = torchrun_environ(2 * container + local, local, 4, LOCAL_WORLD_SIZE="2")
            fake.add(launcher + 1 + local, parent=launcher, environ=environ, inner_pid=10 + local)
    ranks = [process for process in processes(fake) if process.role is Role.RANK]
    assert [(rank.rank, rank.inner_pid) for rank in ranks] == [(0, 10), (1, 11), (2, 10), (3, 11)]
    assert len({rank.job for rank in ranks}) == 1


class TestOrphans:
    def test_workers_of_a_dead_rank_stay_in_its_group(self, fake: FakeProc) -> None:
        add_torchrun(fake, ranks=3)
        for pid in (150, 151):
            fake.add(pid, parent=1, group=104, arguments=FORKED, environ=torchrun_environ(3, size=4))
        found = roles(fake)
        assert found[150] == found[151] == ("child", 3)
        assert sorted(rank for role, rank in found.values() if role == "rank" and rank is not None) == [0, 1, 2]

    def test_the_gap_says_that_the_rank_is_gone(self, fake: FakeProc) -> None:
        add_torchrun(fake, ranks=3)
        fake.add(150, parent=1, group=104, arguments=FORKED, environ=torchrun_environ(3, size=4))
        (gap,) = discover("node1", OWN_PID, fake.root).gaps
        assert (gap.who, gap.what) == ("rank 3", "its process is gone")
        assert "pid 150" in gap.why

    def test_adopted_by_torchrun_itself(self, fake: FakeProc) -> None:
        """In a container torchrun may be PID 1."""
        add_torchrun(fake, ranks=2)
        fake.add(150, parent=100, group=140, arguments=FORKED, environ=torchrun_environ(1, size=2))
        assert roles(fake)[150] == ("child", 1)
        assert roles(fake)[102] == ("rank", 1)

    def test_adopted_by_a_reaper_without_a_group_of_its_own(self, fake: FakeProc) -> None:
        fake.add(50, arguments=["tini", "--", "torchrun"])
        fake.add(100, parent=50, arguments=TORCHRUN)
        fake.add(101, parent=100, group=100, environ=torchrun_environ(0))
        fake.add(150, parent=50, group=100, arguments=FORKED, environ=torchrun_environ(1))
        assert roles(fake)[150] == ("child", 1)

    def test_left_from_before_a_restart(self, fake: FakeProc) -> None:
        add_torchrun(fake, TORCHELASTIC_RESTART_COUNT="1", MASTER_PORT="29501")
        fake.add(150, parent=1, environ=torchrun_environ(0, size=2))
        found = roles(fake)
        assert found[150] == ("child", 0)
        assert [process.pid for process in processes(fake) if process.role is Role.RANK] == [101, 102]

    def test_ranks_whose_launcher_has_died_are_still_ranks(self, fake: FakeProc) -> None:
        for rank in (0, 1):
            fake.add(101 + rank, parent=1, environ=torchrun_environ(rank, size=2))
        assert roles(fake) == {101: ("rank", 0), 102: ("rank", 1)}

    def test_ranks_that_a_script_left_in_the_background_are_still_ranks(self, fake: FakeProc) -> None:
        for rank in (0, 1):
            fake.add(101 + rank, parent=1, group=90, environ=torchrun_environ(rank, size=2))
        assert roles(fake) == {101: ("rank", 0), 102: ("rank", 1)}

    @pytest.mark.parametrize(
        "arguments",
        [
            ["python", "-c", "from multiprocessing.resource_tracker import main;main(8)"],
            ["python", "/x/torch/_inductor/compile_worker/__main__.py", "--workers=32"],
        ],
    )
    def test_helpers_are_never_ranks(self, fake: FakeProc, arguments: list[str]) -> None:
        add_torchrun(fake)
        fake.add(150, parent=1, arguments=arguments, environ=torchrun_environ(5, size=8))
        assert roles(fake)[150] == ("child", 5)


def test_of_two_programs_side_by_side_the_one_with_torch_is_the_rank(fake: FakeProc) -> None:
    fake.add(101, arguments=["bash", "run.sh"], environ=torchrun_environ(0, size=1))
    fake.add(102, parent=101, arguments=["python", "monitor.py"], environ=torchrun_environ(0, size=1))
    fake.add(103, parent=101, environ=torchrun_environ(0, size=1), has_torch=True)
    assert roles(fake) == {103: ("rank", 0), 102: ("child", 0), 101: ("launcher", None)}


class TestNcclprobeItself:
    def test_the_probe_its_parents_and_its_children(self, fake: FakeProc) -> None:
        add_torchrun(fake)
        shell = torchrun_environ(0, size=2)
        fake.add(300, arguments=["bash"], environ=shell)
        fake.add(301, parent=300, arguments=["/v/bin/python", "/v/bin/ncclprobe", "diagnose"], environ=shell)
        fake.add(302, parent=301, arguments=["python3", "-ISBc", "import sys; exec(1) # ncclprobe"], environ=shell)
        fake.add(303, parent=302, arguments=["python3", "-c", "import x"], environ=shell)
        fake.add(304, parent=303, arguments=["python3", "-c", "import x"], environ=shell)
        assert {pid for pid in roles(fake, own_pid=303) if pid >= 300} == set()

    def test_somebody_elses_in_a_shell_of_the_job(self, fake: FakeProc) -> None:
        fake.add(301, arguments=["python", "-m", "ncclprobe.cli.main", "diagnose"], environ=srun_environ(0))
        assert roles(fake) == {}

    def test_a_rank_that_starts_it_is_a_rank(self, fake: FakeProc) -> None:
        (rank, _) = add_torchrun(fake)
        environ = torchrun_environ(0, size=2)
        fake.add(301, parent=rank, arguments=["python", "/v/bin/ncclprobe", "diagnose"], environ=environ)
        fake.add(302, parent=301, arguments=["python3", "-c", "import x"], environ=environ)
        assert roles(fake, own_pid=302) == {101: ("rank", 0), 102: ("rank", 1), 100: ("launcher", None)}

    def test_a_program_in_a_folder_of_that_name_is_a_rank(self, fake: FakeProc) -> None:
        environ = torchrun_environ(0)
        fake.add(101, arguments=["python", "/tmp/ncclprobe-demo/train.py"], environ=environ)
        assert roles(fake) == {101: ("rank", 0)}


def test_a_user_without_a_name(fake: FakeProc) -> None:
    fake.add(101, environ=torchrun_environ(0), uid=54_321)
    assert processes(fake)[0].user == "54321"
    assert os.getuid() != 54_321
