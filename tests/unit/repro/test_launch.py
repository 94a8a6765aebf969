"""What is asked of torchrun, what is refused, and how a job is seen to be stuck; no torch needed."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ncclprobe.model.errors import NcclprobeError, UsageError
from ncclprobe.repro import launch as launch_module
from ncclprobe.repro import watched_job
from ncclprobe.repro.catalog import find
from ncclprobe.repro.job import Job
from ncclprobe.repro.launch import launch
from ncclprobe.repro.reproducer import JobState
from ncclprobe.repro.supervisor import processes_of

REPRO = find("mismatched-logging")
Start = Callable[..., Job]

# Stands for torchrun and its only rank: `step` prints where torchrun would put it.
RANK = """
import pathlib, sys, time
log = pathlib.Path(__file__).parent / "logs/run/attempt_0/0/stdout.log"
log.parent.mkdir(parents=True)
def step(number):
    with log.open("a") as file:
        file.write(f"step {number} loss 0\\n")
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Launch a program of one process instead of torchrun, its files below `tmp_path`."""
    monkeypatch.setattr(launch_module, "_torchrun", lambda *_: [sys.executable])
    monkeypatch.setattr(launch_module, "find_spec", lambda _: True)
    monkeypatch.setattr(launch_module.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    monkeypatch.setattr(watched_job, "_QUIET_S", 0.4)
    (tmp_path / "temporary").mkdir()
    program = tmp_path / "train.py"

    def start(code: str, at_step: int = 3, fixed: bool = False) -> Job:
        program.write_text(RANK + code)
        return launch(replace(REPRO, program=str(program)), ranks=2, at_step=at_step, fixed=fixed)

    return start


@pytest.mark.parametrize(
    ("ranks", "at_step", "what"), [(1, 400, "cannot hang on 1 rank"), (4, 0, "no step 0"), (4, -5, "no step -5")]
)
def test_a_request_without_sense_is_refused(ranks: int, at_step: int, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        launch(REPRO, ranks=ranks, at_step=at_step)


def test_without_torch_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_module, "find_spec", lambda _: None)
    with pytest.raises(NcclprobeError, match="the reproducers need torch, which is not installed") as caught:
        launch(REPRO, ranks=4)
    assert "pip install 'ncclprobe[repro]'" in caught.value.advice


def test_the_job_inherits_no_other_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "MASTER_ADDR", "SLURM_PROCID", "PET_NNODES", "TORCHELASTIC_RUN_ID", "TORCH_DISTRIBUTED_DEBUG"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "77")
    environment = launch_module._environment()
    assert not {"RANK", "MASTER_ADDR", "SLURM_PROCID", "PET_NNODES", "TORCHELASTIC_RUN_ID"} & set(environment)
    assert "TORCH_DISTRIBUTED_DEBUG" not in environment
    assert environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert environment["TORCH_FR_BUFFER_SIZE"] == "77"


def test_torchrun_is_kept_to_the_loopback_and_the_private_directory() -> None:
    command = launch_module._torchrun("demo-1", Path("/tmp/x"), 4)
    assert {"--nproc-per-node=4", "--rdzv-id=demo-1", "--local-addr=127.0.0.1", "--log-dir=/tmp/x/logs"} <= set(command)
    assert "--rdzv-endpoint=127.0.0.1:0" in command


def test_a_job_is_stuck_when_it_is_past_the_step_and_silent(start: Start) -> None:
    with start("step(1); step(2); step(3)\ntime.sleep(600)\n") as job:
        assert job.wait_until_stuck(timeout_s=30) is JobState.STUCK
        assert job.logs.steps() == {0: 3}
        assert list(processes_of(job.run_id)) == [job.launcher_pid]


def test_a_job_that_is_silent_before_the_step_is_still_starting(start: Start) -> None:
    with start("step(1)\ntime.sleep(600)\n") as job:
        assert job.wait_until_stuck(timeout_s=1.5) is JobState.RUNNING


def test_silence_is_no_hang_before_the_first_step_is_done(start: Start) -> None:
    with start("time.sleep(600)\n", at_step=1) as job:
        assert job.wait_until_stuck(timeout_s=1.5) is JobState.RUNNING


def test_the_planted_step_itself_may_never_be_printed(start: Start) -> None:
    with start("step(1); step(2)\ntime.sleep(600)\n", at_step=3) as job:
        assert job.wait_until_stuck(timeout_s=30) is JobState.STUCK


def test_a_job_that_goes_on_past_the_step_is_running(start: Start) -> None:
    with start("for number in range(1, 1000):\n    step(number)\n    time.sleep(0.05)\n") as job:
        assert job.wait_until_stuck(timeout_s=2) is JobState.RUNNING


def test_a_job_that_fails_has_ended_and_says_why(start: Start) -> None:
    with start("sys.exit('no such backend')\n") as job:
        assert job.wait_until_stuck(timeout_s=30) is JobState.ENDED
        assert job.wait() == 1
        assert job.logs.failure() == "no such backend"


def test_options_reach_the_program(start: Start) -> None:
    with start("print(sys.argv[1:])\n", at_step=7, fixed=True) as job:
        assert job.wait(timeout_s=30) == 0
        assert job.logs.failure() == "['--at-step=7', '--backend=auto', '--fixed']"


def test_waiting_gives_up_in_time(start: Start) -> None:
    with start("time.sleep(600)\n") as job:
        assert job.wait(timeout_s=0.1) is None


def test_stopping_leaves_nothing_and_may_be_repeated(start: Start) -> None:
    job = start("time.sleep(600)\n")
    assert job.directory.exists()
    job.stop()
    job.stop()
    assert not list(job.directory.parent.iterdir())
    assert not processes_of(job.run_id)
    assert job.wait() == -signal.SIGKILL


def test_an_exception_in_the_caller_stops_the_job(start: Start) -> None:
    with pytest.raises(KeyboardInterrupt), start("time.sleep(600)\n") as job:
        raise KeyboardInterrupt
    assert not job.directory.exists()
    assert not processes_of(job.run_id)


def test_a_killed_supervisor_is_noticed_and_cleaned_up_after(start: Start) -> None:
    # A program that ignores the SIGTERM that it gets when its parent dies.
    with start("import signal\nsignal.signal(15, signal.SIG_IGN)\nstep(1)\ntime.sleep(600)\n") as job:
        while job.logs.steps() != {0: 1}:
            assert job.wait(timeout_s=0.05) is None
        os.kill(job._supervisor.pid, signal.SIGKILL)
        assert job.wait(timeout_s=10) == -signal.SIGKILL
        assert processes_of(job.run_id)
    assert not processes_of(job.run_id)
    assert not job.directory.exists()


def test_a_temporary_directory_that_is_missing_is_one_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "temporary").rmdir()
    with pytest.raises(NcclprobeError, match=r"the job could not be started: .*No such file"):
        start("pass\n")
