"""What ranks write to their logs while they are looked at."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncclprobe.model.job import Role
from ncclprobe.probe.source import Options
from ncclprobe.probe.sources.rank_log import SOURCE
from tests.unit.probe.sources.context import collect, context, process

WRITES = "import time\nfor n in range(1000):\n    print(f'step {n}', flush=True)\n    time.sleep(0.02)\n"
SILENT = "import time\ntime.sleep(600)\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "0.out"


@pytest.fixture
def start(log: Path) -> Iterator[object]:
    started = []

    def begin(code: str) -> int:
        with log.open("w") as file:
            child = subprocess.Popen([sys.executable, "-c", code], stdout=file, stderr=subprocess.DEVNULL)
        started.append(child)
        return child.pid

    yield begin
    for child in started:
        child.kill()
        child.wait()


def wait_for_text(log: Path, child_writes: bool) -> None:
    while child_writes and not log.read_text():
        pass


@pytest.mark.parametrize("role", [Role.RANK, Role.LAUNCHER])
def test_what_a_rank_writes_between_the_looks_is_a_file_of_its_own(start, log: Path, role: Role) -> None:  # type: ignore[no-untyped-def]
    pid = start(WRITES)
    wait_for_text(log, child_writes=True)
    found, gaps = collect(SOURCE, context(process(pid, 0, role), options=Options(interval_s=0.3)))
    assert not gaps
    if role is Role.LAUNCHER:
        assert len(found) == 1
        return
    first, second = found
    assert (first.file, first.look, second.file, second.look) == (
        "rank0.stdout.log",
        None,
        "rank0.stdout.look2.log",
        2,
    )
    assert first.data.startswith(b"step 0\n")
    assert log.read_bytes().startswith(first.data + second.data)
    assert b"step" in second.data


def test_a_log_that_does_not_grow_is_read_once(start, log: Path) -> None:  # type: ignore[no-untyped-def]
    found, _ = collect(SOURCE, context(process(start(SILENT), 0)))
    assert [item.file for item in found] == ["rank0.stdout.log"]
