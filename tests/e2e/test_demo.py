"""The demonstration on this machine: a real job hangs, and one command names the rank and the line."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncclprobe.repro import mismatched_logging
from ncclprobe.repro.job import Job
from ncclprobe.repro.launch import launch
from ncclprobe.repro.reproducer import JobState
from ncclprobe.repro.truth import truth_of

pytestmark = pytest.mark.e2e


def ncclprobe(*arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from ncclprobe.cli.main import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    """Four ranks that hang at an early step."""
    with launch(mismatched_logging.REPRO, ranks=4, at_step=40, backend="gloo") as running:
        assert running.wait_until_stuck(90) is JobState.STUCK
        yield running


def verdict_of(job: Job, *options: str) -> dict:  # type: ignore[type-arg]
    done = ncclprobe("diagnose", "--job", job.run_id, "--format", "json", *options)
    assert done.returncode == 1, done.stderr
    return json.loads(done.stdout)["verdict"]  # type: ignore[no-any-return]


def test_with_live_dumps(job: Job) -> None:
    verdict = verdict_of(job, "--live-dump")
    truth = truth_of(mismatched_logging.REPRO, 4)
    assert (verdict["cause"], verdict["guilty_ranks"], verdict["confidence"]) == ("collective-extra", [0], "certain")
    assert verdict["victims"] == "1-3"
    on = verdict["blocked_on"]
    assert (on["group"], on["op"]) == ("default_pg", "all_gather")
    assert on["seq"] > 40
    assert 0 < on["age_s"] < 300
    place = verdict["where"][0]
    assert (place["rank"], place["line"], Path(place["file"]).name) == (0, truth.line, truth.file)
    assert "mean_over_ranks(loss)" in place["source_line"]
    assert place["condition"].startswith("if rank == 0")
    kinds = {citation["artifact"].split("/")[2] for citation in verdict["evidence"]}
    assert {"live_dump", "user_code", "stacks"} <= kinds


def test_from_stacks_alone(job: Job) -> None:
    verdict = verdict_of(job)
    truth = truth_of(mismatched_logging.REPRO, 4)
    assert (verdict["cause"], verdict["guilty_ranks"], verdict["confidence"]) == ("collective-extra", [0], "probable")
    assert verdict["where"][0]["line"] == truth.line


def test_without_stacks_and_dumps_nobody_is_named(job: Job) -> None:
    done = ncclprobe("diagnose", "--job", job.run_id, "--format", "json", "--no-stacks")
    assert done.returncode == 3
    assert json.loads(done.stdout)["verdict"]["guilty_ranks"] == []


def test_the_bundle_gives_the_same_report_byte_for_byte(job: Job, tmp_path: Path) -> None:
    bundle = str(tmp_path / "evidence.tar.gz")
    shown = ncclprobe("diagnose", "--job", job.run_id, "--live-dump", "-o", bundle)
    again = ncclprobe("analyze", bundle)
    assert (shown.stdout, shown.returncode) == (again.stdout, again.returncode)
    assert "collective-extra" in shown.stdout


def test_collect_writes_a_bundle_that_analyze_reads(job: Job, tmp_path: Path) -> None:
    done = ncclprobe("collect", "--job", job.run_id, "-o", str(tmp_path / "bundle"))
    assert (done.returncode, done.stdout) == (0, "")
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    kinds = {item["kind"] for item in manifest["items"]}
    assert {"processes", "stacks", "kernel-log", "rank-log", "user-code"} <= kinds
    report = json.loads(ncclprobe("analyze", str(tmp_path / "bundle"), "--format", "json").stdout)
    assert report["verdict"]["guilty_ranks"] == [0]
    assert any("NVIDIA driver" in gap["why"] for gap in report["gaps"])


def test_two_jobs_on_one_machine_are_listed_not_guessed(job: Job) -> None:
    with launch(mismatched_logging.REPRO, ranks=2, at_step=20, backend="gloo") as other:
        assert other.wait_until_stuck(90) is JobState.STUCK
        done = ncclprobe("diagnose")
        assert done.returncode == 2
        assert job.run_id in done.stderr
        assert other.run_id in done.stderr
        chosen = ncclprobe("diagnose", "--pid", str(other.pids[1]), "--format", "json")
        assert json.loads(chosen.stdout)["coverage"]["world_size"] == 2


def test_a_job_name_that_nobody_has_is_said_with_those_there_are(job: Job) -> None:
    done = ncclprobe("diagnose", "--job", "no-such-job")
    assert done.returncode == 2
    assert job.run_id in done.stderr


def test_the_reproducer_diagnoses_itself() -> None:
    done = ncclprobe("repro", "mismatched-logging", "--at-step", "40", "--diagnose", timeout_s=150)
    assert done.returncode == 0, done.stderr
    assert "collective-extra" in done.stdout
    assert "as planted" in done.stderr
