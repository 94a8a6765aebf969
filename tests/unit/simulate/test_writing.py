"""Files: names, contents, the same from any number of processes."""

import json
from pathlib import Path

import pytest

from ncclprobe.model.errors import UsageError
from ncclprobe.simulate import writing
from ncclprobe.simulate.request import Request
from ncclprobe.simulate.writing import write
from tests.unit.simulate.simulated import dumps_of, plan


def request(**options: object) -> Request:
    return Request(**{"name": "stuck-in-python/mid-step", "ranks": 8, **options})  # type: ignore[arg-type]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((directory / "dumps").iterdir())}


def test_a_file_a_rank_and_the_truth(tmp_path: Path) -> None:
    truth = write(request(), tmp_path / "job")
    assert sorted(path.name for path in (tmp_path / "job").iterdir()) == ["dumps", "truth.json"]
    expected = {
        f"comm_lib_trace_rank_{rank}": data for rank, data in dumps_of(plan("stuck-in-python/mid-step", 8)).items()
    }
    assert contents(tmp_path / "job") == expected
    assert json.loads((tmp_path / "job" / "truth.json").read_text())["guilty_ranks"] == list(truth.guilty_ranks)


def test_dropped_ranks_have_no_file(tmp_path: Path) -> None:
    write(request(drop="0,5-7"), tmp_path)
    assert sorted(contents(tmp_path)) == [f"comm_lib_trace_rank_{rank}" for rank in (1, 2, 3, 4)]


def test_several_processes_write_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(request(), tmp_path / "one", workers=1)
    monkeypatch.setattr(writing, "_ALONE", 0)
    monkeypatch.setattr(writing, "_BATCH", 3)
    write(request(), tmp_path / "two", workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_files_time_is_that_of_the_dump(tmp_path: Path) -> None:
    write(request(seed=7), tmp_path)
    times_ns = [path.stat().st_mtime_ns for path in (tmp_path / "dumps").iterdir()]
    assert all(1_760_000_600_000_000_000 < time_ns < 1_760_000_700_000_000_000 for time_ns in times_ns)


def test_a_directory_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        write(request(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    with pytest.raises(UsageError, match="cannot be written"):
        write(request(), tmp_path / "precious")
