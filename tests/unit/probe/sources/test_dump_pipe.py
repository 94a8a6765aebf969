"""The dump pipe: a stand-in opens it as torch's DumpPipe does and writes its dump as torch's DebugInfoWriter does."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from ncclprobe.model.evidence import Artifact, Gap, Kind
from ncclprobe.parse import flight_recorder
from ncclprobe.probe.source import Collected, Found
from ncclprobe.probe.sources import dump_pipe
from ncclprobe.probe.sources.dump_pipe import SOURCE
from tests.unit.probe.processes import running
from tests.unit.probe.sources.context import collect, context, process

# ProcessGroupNCCL.hpp: unlink, mkfifo, open without blocking, read 128 bytes at each turn of the monitor.
MONITOR = """
import os, pickle, sys, time
environ, rank, manner = os.environ, os.environ["RANK"], environ_manner
name = environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + rank + ".pipe"
if os.path.exists(name):
    os.unlink(name)
os.mkfifo(name, 0o666)
pipe = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
print("ready", flush=True)
dump = pickle.dumps({"version": "2.4", "entries": [], "pg_config": {}, "pg_status": {}}, protocol=2)
while True:
    time.sleep(0.05)
    if manner == "deaf" or not os.read(pipe, 128):
        continue
    if manner == "dies":
        os._exit(1)
    with open(environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] + rank, "wb", 0) as file:
        half = len(dump) // 2
        file.write(dump[:half])
        time.sleep(0.6 if manner == "slow" else 0)
        if manner == "broken":
            continue
        file.write(dump[half:])
"""


class Job:
    """Ranks with a pipe and a dump file each in one folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack, self.pids = folder, stack, []  # type: ignore[var-annotated]

    def environ(self, rank: int) -> dict[str, str]:
        return {
            "RANK": str(rank),
            "HOME": str(self.folder),
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{self.folder}/pipe_",
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{self.folder}/dump_",
        }

    def start(self, manner: str = "good") -> int:
        code = MONITOR.replace("environ_manner", repr(manner))
        self.pids.append(self._stack.enter_context(running(code, environ=self.environ(len(self.pids)))))
        return self.pids[-1]

    def start_without_pipe(self) -> int:
        self.pids.append(self._stack.enter_context(running(environ=self.environ(len(self.pids)))))
        return self.pids[-1]

    def collect(self, **fields: Any) -> tuple[list[Found], list[Gap]]:
        return collect(SOURCE, context(*(process(pid, rank) for rank, pid in enumerate(self.pids)), **fields))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(dump_pipe, "WAIT_S", 1.5)
    with ExitStack() as stack:
        yield Job(tmp_path, stack)


def earlier(folder: Path, kind: Kind, origin: str, data: bytes = b"", **fields: Any) -> Collected:
    spool = folder / f"spool-{len(list(folder.iterdir()))}"
    spool.write_bytes(data)
    return Collected(artifact=Artifact(path="x/y", kind=kind, host="node1", origin=origin, **fields), spool=spool)


def test_every_rank_writes_one_and_goes_on(job: Job) -> None:
    job.start(), job.start()
    found, gaps = job.collect()
    assert not gaps
    assert [(item.rank, item.pid, item.origin, item.truncated) for item in sorted(found, key=lambda one: one.file)] == [
        (rank, pid, f"{job.folder}/dump_{rank}", False) for rank, pid in enumerate(job.pids)
    ]
    assert all(flight_recorder.parse(item.data).records for item in found)
    assert all(os.path.exists(f"/proc/{pid}") for pid in job.pids)


def test_a_slow_writer_is_waited_for(job: Job) -> None:
    job.start("slow")
    (item,), gaps = job.collect()
    assert (item.truncated, gaps) == (False, [])
    assert flight_recorder.parse(item.data).records


def test_a_writer_that_stops_half_way_leaves_a_cut_dump(job: Job) -> None:
    job.start("broken")
    (item,), _ = job.collect()
    assert item.truncated
    assert item.data


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda job: job.start_without_pipe(), "torch has made no pipe"),
        (lambda job: os.mkfifo(job.folder / f"pipe_{len(job.pids)}.pipe") or job.start_without_pipe(), "nobody reads"),
        (lambda job: (job.folder / "pipe_0.pipe").write_text("") or True, "not a pipe"),
        (lambda job: job.start("deaf"), "it did not write one in time"),
        (lambda job: job.start("dies"), "it did not write one in time"),
    ],
    ids=["no pipe", "no reader", "a file in its place", "never reads", "dies over it"],
)
def test_who_does_not_answer_is_a_gap_and_no_wait(job: Job, prepare: Callable[[Job], object], why: str) -> None:
    prepare(job)
    if not job.pids:
        job.start_without_pipe()
    begin = time.monotonic()
    found, (gap,) = job.collect()
    assert not found
    assert gap.who == "rank 0"
    assert why in gap.why
    assert time.monotonic() - begin < 3


def test_a_pipe_that_is_full_is_not_waited_for(job: Job) -> None:
    job.start("deaf")
    pipe = os.open(job.folder / "pipe_0.pipe", os.O_WRONLY | os.O_NONBLOCK)
    for size in (4_096, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(pipe, b"x" * size)
    begin = time.monotonic()
    _, (gap,) = job.collect()
    os.close(pipe)
    assert "the pipe is full" in gap.why
    assert time.monotonic() - begin < 1


def test_the_same_reason_is_one_gap(job: Job) -> None:
    for _ in range(3):
        job.start_without_pipe()
    _, gaps = job.collect()
    assert [gap.who for gap in gaps] == ["ranks 0-2"]


def test_a_dump_that_is_not_in_the_bundle_is_never_overwritten(job: Job) -> None:
    job.start()
    (job.folder / "dump_0").write_bytes(b"of the watchdog.")
    found, (gap,) = job.collect()
    assert not found
    assert "another would replace it" in gap.why
    assert (job.folder / "dump_0").read_bytes() == b"of the watchdog."


def test_one_that_is_in_the_bundle_may_be(job: Job) -> None:
    job.start()
    (job.folder / "dump_0").write_bytes(b"of the watchdog.")
    known = earlier(job.folder, Kind.FLIGHT_RECORDER, f"{job.folder}/dump_0", rank=0)
    (item,), gaps = job.collect(earlier=(known,))
    assert not gaps
    assert flight_recorder.parse(item.data).records


def test_a_rank_whose_interpreter_lock_is_taken_is_not_asked(job: Job) -> None:
    pid = job.start()
    thread = {"pid": pid, "thread_name": "MainThread", "os_thread_id": pid, "owns_gil": True, "frames": []}
    data = json.dumps([thread]).encode()
    looks = [earlier(job.folder, Kind.STACKS, "py-spy", data, rank=0, pid=pid, look=look) for look in (1, 2)]
    found, (gap,) = job.collect(earlier=tuple(looks))
    assert not found
    assert "interpreter lock" in gap.why
    assert not (job.folder / "dump_0").exists()
    (item,), _ = job.collect(earlier=tuple(looks[:1]))
    assert item.rank == 0


def test_ranks_without_the_variable_are_no_gap(job: Job) -> None:
    with running(environ={"RANK": "0"}) as pid:
        assert collect(SOURCE, context(process(pid, 0))) == ([], [])
