"""What `ncclprobe run` sets, and what it leaves alone."""

import pytest

from ncclprobe.prepare.environment import job_name, make_plan

EVERYTHING = {
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/d/nccl_trace_rank_",
    "TORCH_FR_DUMP_TEMP_FILE": "/d/nccl_trace_rank_",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/d/pipe_rank_",
    "NCCL_DEBUG": "WARN",
    "NCCL_DEBUG_TIMESTAMP_LEVELS": "WARN,INFO",
}


def test_all_of_it_in_an_empty_environment() -> None:
    plan = make_plan({"PATH": "/bin"}, "/d")
    assert plan.variables == EVERYTHING
    assert plan.needs_directory
    assert not plan.kept


def test_nothing_is_changed_that_is_there() -> None:
    plan = make_plan(EVERYTHING, "/other")
    assert plan.variables == {}
    assert not plan.needs_directory
    assert {kept.name for kept in plan.kept} == set(EVERYTHING)


@pytest.mark.parametrize(
    ("there", "left_alone"),
    [
        ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
        ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
        ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"),
    ],
)
@pytest.mark.parametrize("value", ["0", ""])
def test_nor_by_its_older_or_newer_name(there: str, left_alone: str, value: str) -> None:
    plan = make_plan({there: value}, "/d")
    assert not {there, left_alone} & plan.variables.keys()
    assert [(kept.name, kept.value) for kept in plan.kept] == [(there, value)]
    assert len(plan.variables) < len(EVERYTHING)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "now-7"),
        ({"SLURM_JOB_ID": "123"}, "slurm-123"),
        ({"SLURM_JOB_ID": "123", "SLURM_STEP_ID": "0"}, "slurm-123.0"),
        ({"TORCHELASTIC_RUN_ID": "none"}, "now-7"),
        ({"TORCHELASTIC_RUN_ID": "../../etc x"}, "run-..-..-etc-x"),
        ({"PBS_JOBID": "5.host"}, "pbs-5.host"),
    ],
)
def test_the_directory_is_named_for_the_job(environ: dict[str, str], expected: str) -> None:
    assert job_name(environ, "now", 7) == expected
