"""What an environment says: torchrun's variables first, a scheduler's where there are no others."""

import pytest

from ncclprobe.model.job import JobKey
from ncclprobe.probe import identity
from tests.unit.probe.fake_proc import torchrun_environ

SRUN = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "PMIX_NAMESPACE": "prterun-7",
}


@pytest.mark.parametrize(
    ("environ", "rank", "local_rank", "world_size", "job"),
    [
        (torchrun_environ(0), 0, 0, 8, JobKey(run_id="run1", master="node1:29500")),
        (SRUN, 5, 1, 8, JobKey(scheduler_id="slurm:77.0")),
        (MPIRUN, 3, 1, 4, JobKey(scheduler_id="prterun-7")),
        ({"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0"}, 2, 0, 4, JobKey()),
        ({"MV2_COMM_WORLD_RANK": "6", "MV2_COMM_WORLD_SIZE": "8"}, 6, None, 8, JobKey()),
        ({"HOME": "/root"}, None, None, None, JobKey()),
    ],
    ids=["torchrun", "srun", "mpirun", "hydra", "mvapich", "none"],
)
def test_launchers(
    environ: dict[str, str], rank: int | None, local_rank: int | None, world_size: int | None, job: JobKey
) -> None:
    assert identity.rank(environ) == rank
    assert identity.local_rank(environ) == local_rank
    assert identity.world_size(environ) == world_size
    assert identity.job(environ) == job


def test_torchrun_under_srun_takes_nothing_from_srun_but_the_job() -> None:
    environ = {**SRUN, "RANK": "12", "MASTER_ADDR": "node1", "MASTER_PORT": "1"}
    assert identity.rank(environ) == 12
    assert identity.local_rank(environ) is None
    assert identity.world_size(environ) is None
    assert identity.job(environ) == JobKey(master="node1:1", scheduler_id="slurm:77")


def test_the_rendezvous_id_none_is_no_name() -> None:
    assert identity.job({"TORCHELASTIC_RUN_ID": "none", "RANK": "0"}) == JobKey()


@pytest.mark.parametrize("value", ["", "-1", "1.0", "x", "٣", "123456789012", " 1"])
def test_what_is_no_whole_number_is_no_rank(value: str) -> None:
    assert identity.rank({"RANK": value}) is None


@pytest.mark.parametrize("name", ["77", "77.0", "slurm:77", "slurm:77.0"])
def test_a_slurm_job_is_named_by_its_number(name: str) -> None:
    assert identity.job(SRUN).is_named(name)
    assert not identity.job(SRUN).is_named("7")
    assert not identity.job(SRUN).is_named("")
