"""The end of what the job's processes print, where that goes to a file."""

import os
import subprocess
from pathlib import Path

import pytest

from ncclprobe.model.job import Role
from ncclprobe.probe.source import Found
from ncclprobe.probe.sources import rank_log
from ncclprobe.probe.sources.rank_log import SOURCE
from tests.unit.probe.sources.context import collect, context, process


@pytest.fixture
def start(tmp_path: Path, request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    def begin(stdout: object, stderr: object) -> int:
        sleeper = subprocess.Popen(["sleep", "600"], stdout=stdout, stderr=stderr)  # type: ignore[call-overload]
        request.addfinalizer(lambda: (sleeper.kill(), sleeper.wait()))
        return int(sleeper.pid)

    return begin


def by_name(found: list[Found]) -> dict[str, bytes]:
    return {item.file: item.data for item in found}


def test_stdout_and_stderr_of_ranks_and_launchers(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    files = [tmp_path / name for name in ("0.out", "0.err", "launcher.log")]
    for file in files:
        file.write_text(f"{file.name}\n")
    out, err, both = (file.open("a") for file in files)
    rank, launcher = start(out, err), start(both, both)
    found, gaps = collect(SOURCE, context(process(rank, 0), process(launcher, None, Role.LAUNCHER)))
    assert not gaps
    assert by_name(found) == {
        "rank0.stdout.log": b"0.out\n",
        "rank0.stderr.log": b"0.err\n",
        f"launcher{launcher}.stdout.log": b"launcher.log\n",
    }
    assert found[0].origin == str(files[0])


def test_one_log_of_all_ranks_is_taken_once(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "log").write_text("x")
    log = (tmp_path / "log").open("a")
    pids = [start(log, log) for _ in range(3)]
    found, _ = collect(SOURCE, context(*(process(pid, rank) for rank, pid in enumerate(pids))))
    assert [item.file for item in found] == ["rank0.stdout.log"]


def test_only_the_end_of_a_long_log(start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(rank_log, "_LIMIT_BYTES", 10)
    (tmp_path / "log").write_text("0123456789abcdef")
    (found,), _ = collect(SOURCE, context(process(start((tmp_path / "log").open("a"), subprocess.DEVNULL), 0)))
    assert found.data == b"6789abcdef"
    assert found.truncated


def test_a_log_that_was_deleted_is_still_read(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "log").write_text("last words")
    pid = start((tmp_path / "log").open("a"), subprocess.DEVNULL)
    (tmp_path / "log").unlink()
    (found,), _ = collect(SOURCE, context(process(pid, 0)))
    assert found.data == b"last words"
    assert found.origin.endswith("(deleted)")


def test_pipes_and_devices_are_left_alone_and_that_is_a_gap(start) -> None:  # type: ignore[no-untyped-def]
    read_fd, write_fd = os.pipe()
    pid = start(write_fd, subprocess.DEVNULL)
    found, (gap,) = collect(SOURCE, context(process(pid, 0)))
    os.close(read_fd)
    os.close(write_fd)
    assert not found
    assert gap.what == "no log file"


def test_a_process_that_is_gone_and_none_at_all(start) -> None:  # type: ignore[no-untyped-def]
    gone = subprocess.Popen(["true"])
    gone.wait()
    found, gaps = collect(SOURCE, context(process(gone.pid, 0)))
    assert not found
    assert [gap.what for gap in gaps] == ["no log file"]
    assert collect(SOURCE, context()) == ([], [])


def test_the_output_of_children_is_that_of_their_rank(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "log").write_text("x")
    pid = start((tmp_path / "log").open("a"), subprocess.DEVNULL)
    assert collect(SOURCE, context(process(pid, 0, Role.CHILD))) == ([], [])


def test_the_log_of_a_rank_that_is_gone_lies_beside(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for rank, text in enumerate(("zero", "one", "two")):
        (tmp_path / f"train-{rank}.out").write_text(text)
    alive = {rank: (tmp_path / f"train-{rank}.out").open("a") for rank in (0, 2)}
    pids = {rank: start(file, file) for rank, file in alive.items()}
    found, _ = collect(SOURCE, context(*(process(pid, rank) for rank, pid in pids.items())))
    assert by_name(found) == {"rank0.stdout.log": b"zero", "rank2.stdout.log": b"two", "rank1.stdout.log": b"one"}
    (gone,) = (item for item in found if item.rank == 1)
    assert (gone.pid, gone.origin) == (None, str(tmp_path / "train-1.out"))


def test_a_log_of_an_older_run_is_left_alone(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for rank in range(3):
        (tmp_path / f"train-{rank}.out").write_text("x")
    os.utime(tmp_path / "train-1.out", (1_000_000_000, 1_000_000_000))
    alive = {rank: (tmp_path / f"train-{rank}.out").open("a") for rank in (0, 2)}
    pids = {rank: start(file, file) for rank, file in alive.items()}
    found, _ = collect(SOURCE, context(*(process(pid, rank) for rank, pid in pids.items())))
    assert {item.rank for item in found} == {0, 2}
