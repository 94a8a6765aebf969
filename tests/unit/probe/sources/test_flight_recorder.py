"""Dumps that torch wrote to files: where each version puts them, of the ranks of this host, of this job."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ncclprobe.model.evidence import Kind
from ncclprobe.probe import proc
from ncclprobe.probe.sources.flight_recorder import SOURCE
from tests.unit.probe.processes import running
from tests.unit.probe.sources.context import collect, context, process


@pytest.fixture
def ranks() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".cache" / "torch").mkdir(parents=True)
    return tmp_path


def dump(path: Path, age_s: float = 0, data: bytes = b"dump") -> None:
    path.write_bytes(data)
    os.utime(path, (time.time() - age_s,) * 2)


@pytest.mark.parametrize(
    ("environ", "file"),
    [
        ({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "{}/chosen_"}, "chosen_0"),
        ({"TORCH_FR_DUMP_TEMP_FILE": "{}/newer_"}, "newer_0"),
        ({"TORCH_FR_DUMP_TEMP_FILE": "relative_"}, "relative_0"),
        ({}, ".cache/torch/nccl_trace_rank_0"),
        ({}, ".cache/torch/comm_lib_trace_rank_0"),
        ({"XDG_CACHE_HOME": "{}"}, "torch/comm_lib_trace_rank_0"),
    ],
)
def test_where_torch_puts_them(ranks: ExitStack, home: Path, environ: dict[str, str], file: str) -> None:
    (home / file).parent.mkdir(exist_ok=True)
    dump(home / file, data=b"\x80\x04.")
    own = {"HOME": str(home), **{key: value.format(home) for key, value in environ.items()}}
    pid = ranks.enter_context(running(environ=own, cwd=home))
    (found,), gaps = collect(SOURCE, context(process(pid, 0)))
    assert not gaps
    assert (found.kind, found.rank, found.data) == (Kind.FLIGHT_RECORDER, 0, b"\x80\x04.")
    assert found.origin.endswith(file)
    assert found.end_ns == (home / file).stat().st_mtime_ns


def test_a_dump_that_several_ranks_lead_to_is_taken_once(ranks: ExitStack, home: Path) -> None:
    dump(home / ".cache/torch/nccl_trace_rank_0")
    dump(home / ".cache/torch/nccl_trace_rank_1")
    pids = [ranks.enter_context(running(environ={"HOME": str(home)})) for _ in range(2)]
    found, _ = collect(SOURCE, context(*(process(pid, rank) for rank, pid in enumerate(pids))))
    assert [item.rank for item in found] == [0, 1]


def test_on_a_shared_home_only_those_of_this_host_and_of_its_dead_ranks(ranks: ExitStack, home: Path) -> None:
    for rank in range(20):
        dump(home / f".cache/torch/nccl_trace_rank_{rank}")
    environ = {"HOME": str(home), "LOCAL_WORLD_SIZE": "4"}
    pids = [ranks.enter_context(running(environ=environ)) for _ in range(2)]
    here = [process(pids[0], 8, local_rank=0), process(pids[1], 10, local_rank=2)]
    found, _ = collect(SOURCE, context(*here))
    assert sorted(item.rank or 0 for item in found) == [8, 9, 10, 11]


def test_an_older_job_wrote_it(ranks: ExitStack, home: Path) -> None:
    for rank in (0, 1):
        dump(home / f".cache/torch/nccl_trace_rank_{rank}", age_s=60)
    pids = [ranks.enter_context(running(environ={"HOME": str(home)})) for _ in range(2)]
    found, gaps = collect(SOURCE, context(*(process(pid, rank) for rank, pid in enumerate(pids))))
    assert not found
    (gap,) = gaps
    assert gap.who == "ranks 0, 1"
    assert "older than the job" in gap.why


def test_the_start_of_the_process_counts_and_not_the_time_of_its_folder(
    ranks: ExitStack, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump(home / ".cache/torch/nccl_trace_rank_0", age_s=3600)
    pid = ranks.enter_context(running(environ={"HOME": str(home)}))
    monkeypatch.setattr(proc, "start_ns", lambda _: time.time_ns() - 2 * 3600 * 10**9)
    (found,), gaps = collect(SOURCE, context(process(pid, 0)))
    assert found.rank == 0
    assert not gaps


def test_what_only_looks_like_one_is_left_alone(ranks: ExitStack, home: Path) -> None:
    cache = home / ".cache/torch"
    os.mkfifo(cache / "nccl_trace_rank_0")
    for name in ("nccl_trace_rank_", "nccl_trace_rank_x", "nccl_trace_rank_1.tmp", "nccl_trace_rank_00000000001"):
        dump(cache / name)
    (cache / "comm_lib_trace_rank_0").symlink_to("loop")
    (cache / "loop").symlink_to("loop")
    pid = ranks.enter_context(running(environ={"HOME": str(home)}))
    found, gaps = collect(SOURCE, context(process(pid, 0)))
    assert not found
    assert {gap.who for gap in gaps} == {"rank 0"}


def test_no_rank_no_dump() -> None:
    assert collect(SOURCE, context()) == ([], [])
