"""`ncclprobe doctor` on this machine: its answer, its exit status, its errors."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.unit.probe.fake_proc import torchrun_environ
from tests.unit.probe.processes import running

CODE = "from ncclprobe.cli.main import main; main()"


def doctor(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", CODE, "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environ},
    )


@pytest.fixture
def name() -> str:
    return f"doctor-{uuid.uuid4().hex[:8]}"


def test_a_rank_and_its_settings(name: str, tmp_path: Path) -> None:
    environ = torchrun_environ(0, size=1, TORCHELASTIC_RUN_ID=name, TORCH_NCCL_BLOCKING_WAIT="1", NCCL_TIMEOUT="9")
    with running(environ=environ):
        done = doctor("--job", name, "-q", NCCL_BLOCKING_WAIT="1")
        written = doctor("--job", name, "-q", "--format", "json", "--out", str(tmp_path / "checkup.json"))
    assert (done.returncode, done.stderr) == (1, "")
    assert "problem: TORCH_NCCL_BLOCKING_WAIT=1: no watchdog runs" in done.stdout
    assert "settings of 1 rank ─" in done.stdout
    assert " NCCL_BLOCKING_WAIT" not in done.stdout, "this shell's settings are not the job's"
    assert (written.returncode, written.stdout) == (1, "")
    document = json.loads((tmp_path / "checkup.json").read_text())
    assert [advice["rule"] for advice in document["advice"]] == ["blocking-wait", "nccl-timeout", "no-pipe"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "html"], "no format"),
        (["--hosts", "node1", "--local"], "contradict"),
        (["--hosts", "node[1-2]", "--pid", "1"], "several"),
        (["--hosts", "/no/such/file.txt"], "does not exist"),
        (["--deadline", "0"], "--deadline"),
        (["--live-dump"], "--live-dump"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_two_lines_and_status_2(arguments: list[str], says: str) -> None:
    done = doctor(*arguments)
    what, advice = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert says in what
    assert advice.startswith("  -> ")


def test_no_host_that_answers_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("127.0.0.1:1\n")
    done = doctor("--hosts", str(tmp_path / "hosts"), "-q", "--deadline", "8")
    assert (done.returncode, done.stdout) == (4, "")
    assert len(done.stderr.splitlines()) == 2
