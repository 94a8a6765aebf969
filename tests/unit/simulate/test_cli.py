"""The command: what it prints, what it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from ncclprobe.cli.main import main; main()", "simulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_evidence_of_a_job_with_its_truth(tmp_path: Path) -> None:
    done = simulate("stuck-in-python/data-loader", "--ranks", "6", "--job", "ddp", "-o", str(tmp_path / "job"))
    assert (done.returncode, done.stdout) == (0, "")
    truth = json.loads((tmp_path / "job" / "truth.json").read_text())
    assert done.stderr.startswith("stuck-in-python/data-loader: rank")
    assert len(truth["guilty_ranks"]) + len(truth["never_blame"]) == 6
    assert len(list((tmp_path / "job" / "dumps").iterdir())) == 6


def test_every_option(tmp_path: Path) -> None:
    options = ["--seed", "3", "--steps", "5", "--version", "2.9", "--format", "json", "--no-frames", "--skew", "0.5"]
    done = simulate(
        "collective-extra", "--ranks", "8", *options, "--drop-dumps", "0,5-7", "--wrap", "--empty", "-o", str(tmp_path)
    )
    assert done.returncode == 0
    names = sorted(path.name for path in (tmp_path / "dumps").iterdir())
    assert names == [f"comm_lib_trace_rank_{rank}" for rank in (1, 2, 3, 4)]
    assert json.loads((tmp_path / "dumps" / names[0]).read_text())["version"] == "2.9"


def test_a_list_of_what_there_is() -> None:
    lines = simulate("--list").stdout.splitlines()
    assert "collective-extra/blocking" in lines
    assert "progressing/skewed" in lines


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no cause is named"),
        (["stuck-in-python"], "no directory is named"),
        (["stuck-in-pythn", "-o", "x"], "try one of: stuck-in-python"),
        (["stuck-in-python", "-o", "x", "--ranks", "1"], "choose 2 to"),
        (["stuck-in-python", "-o", "x", "--format", "xml"], "choose pickle or json"),
        (["stuck-in-python", "-o", "x", "--version", "7"], "choose one of: list, 1.4"),
        (["stuck-in-python", "-o", "x", "--drop-dumps", "all"], "write a number, guilty, or 0,5-7"),
    ],
)
def test_what_is_refused_takes_two_lines_and_leaves_nothing(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = simulate(*[str(tmp_path / "x") if argument == "x" else argument for argument in arguments])
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 2
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []
