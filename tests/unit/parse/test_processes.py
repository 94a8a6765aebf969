"""Processes come back as the probe wrote them; a damaged one costs only itself."""

import json
from dataclasses import asdict, replace

import pytest

from ncclprobe.model.job import JobKey, JobProcess, ProcessLook, Role
from ncclprobe.parse.processes import parse

LOOK = ProcessLook(time_ns=5, state="S", wchan="futex_do_wait", cpu_s=1.5, threads=9)
RANK = JobProcess(
    pid=41,
    role=Role.RANK,
    rank=0,
    local_rank=0,
    world_size=4,
    job=JobKey(run_id="r", master="m:1", scheduler_id="slurm:7"),
    command="python train.py",
    user="u",
    parent_pid=40,
    inner_pid=2,
    looks=(LOOK, replace(LOOK, time_ns=9)),
)
LAUNCHER = JobProcess(
    pid=40, role=Role.LAUNCHER, rank=None, local_rank=None, world_size=None, job=JobKey(), command="torchrun", user="u"
)


def written(*processes: JobProcess) -> bytes:
    return json.dumps({"processes": [asdict(process) for process in processes]}).encode()


def test_they_come_back_as_written() -> None:
    assert parse(written(RANK, LAUNCHER)).records == (RANK, LAUNCHER)


def test_a_process_whose_wait_channel_may_not_be_read_is_kept() -> None:
    hidden = replace(RANK, looks=(replace(LOOK, wchan=None),))
    parsed = parse(written(hidden))
    assert parsed.records == (hidden,)
    assert parsed.problems == ()


@pytest.mark.parametrize(
    "change", [{"pid": None}, {"pid": -1}, {"role": "boss"}, {"rank": "0"}, {"looks": [1]}, {"looks": "ab"}, {"job": 3}]
)
def test_a_damaged_process_costs_itself(change: dict[str, object]) -> None:
    document = json.loads(written(RANK, LAUNCHER))
    document["processes"][0] |= change
    parsed = parse(json.dumps(document).encode())
    assert parsed.records == (LAUNCHER,)
    assert len(parsed.problems) == 1
