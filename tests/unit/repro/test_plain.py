"""Plain processes: the end of one ends no other, and whoever ends their launcher ends them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ncclprobe.repro import plain

SLEEP = "import os, time; print(os.environ['RANK'], flush=True); time.sleep(600)"


def start(directory: Path, *codes: str) -> subprocess.Popen[bytes]:
    ranks = [
        plain.RankPlan(
            argv=[sys.executable, "-c", code], environment={"RANK": str(rank)}, output=f"logs/t-{rank}.out", cgroups=[]
        )
        for rank, code in enumerate(codes)
    ]
    argv = [sys.executable, "-I", "-S", plain.__file__, json.dumps(plain.Plan(ranks=ranks))]
    return subprocess.Popen(argv, cwd=directory)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for(path: Path, text: str) -> None:
    deadline = time.monotonic() + 10
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_rank_that_dies_leaves_the_others_alone(tmp_path: Path, number: signal.Signals) -> None:
    launcher = start(tmp_path, SLEEP, "import os; os.abort()")
    try:
        wait_for(tmp_path / "logs/t-0.out", "0")
        time.sleep(0.2)
        (left,) = children(launcher.pid)
        assert launcher.poll() is None
    finally:
        launcher.send_signal(number)
        launcher.wait(10)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{left}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("codes", "status"),
    [(("", ""), 0), (("", "raise SystemExit(3)", "raise SystemExit(2)"), 3), (("import os; os.abort()",), 134)],
)
def test_the_highest_exit_status_is_that_of_the_job(tmp_path: Path, codes: tuple[str, ...], status: int) -> None:
    assert start(tmp_path, *codes).wait(20) == status


def test_both_streams_of_a_rank_go_to_its_file(tmp_path: Path) -> None:
    start(tmp_path, "import os; os.write(1, b'out '); os.write(2, b'err')").wait(20)
    assert (tmp_path / "logs/t-0.out").read_text() == "out err"
    assert os.listdir(tmp_path / "logs") == ["t-0.out"]
