"""Whatever a file does to its parser, its neighbours are parsed, and nothing stays behind."""

import contextlib
import errno
import mmap
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import pytest

from ncclprobe.model.errors import BundleError, ParseError
from ncclprobe.parse import flight_recorder, isolated, isolated_worker, stacks
from ncclprobe.parse.isolated import Job, Result, parse_isolated
from ncclprobe.parse.parsed import Parsed
from tests.dumps import call, dump

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _nothing_stays_behind() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children()}
    yield
    left = [child for child in psutil.Process().children() if child.pid not in before]  # zombies are seen, too
    # What `spawn` starts once for the whole process; it ends with it.
    assert [child for child in left if "resource_tracker" not in " ".join(child.cmdline())] == []


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers take over short limits from this process."""
    monkeypatch.setattr(isolated, "_start_method", lambda: "fork")
    monkeypatch.setattr(isolated_worker, "CPU_SECONDS", 1.0)
    monkeypatch.setattr(isolated_worker, "MEMORY_BYTES", 256 << 20)


def length(data: bytes) -> Parsed[int]:
    return Parsed(records=(len(data),))


def gobble(data: bytes) -> Parsed[int]:
    pieces = []
    while True:
        pieces.append(bytes(1 << 20))


def gobble_at_once(data: bytes) -> Parsed[int]:
    return Parsed(records=(len(bytes(1 << 40)),))


def spin(data: bytes) -> Parsed[int]:
    while True:
        pass


def sleep(data: bytes) -> Parsed[int]:
    time.sleep(60)
    return length(data)


def crash(data: bytes) -> Parsed[int]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return length(data)


def vanish(data: bytes) -> Parsed[int]:
    os._exit(3)


def be_killed(data: bytes) -> Parsed[int]:
    os.kill(os.getpid(), signal.SIGKILL)
    return length(data)


def answer_at_length(data: bytes) -> Parsed[str]:
    return Parsed(records=("x" * (64 << 20),))


class _Deadly:
    """Kills its process while it is being written."""

    def __reduce__(self) -> tuple[Callable[..., None], tuple[object, ...]]:
        os._exit(4)


def die_while_answering(data: bytes) -> Parsed[object]:
    return Parsed(records=("x" * (8 << 20), _Deadly()))


def stop_half_way(data: bytes) -> Parsed[object]:
    """Half of a large answer is on its way when the process dies."""

    def send_half(connection: Connection, message: memoryview) -> None:
        os.write(connection.fileno(), struct.pack("!i", len(message)))
        for start in range(0, len(message) // 2, 1 << 16):
            os.write(connection.fileno(), message[start : start + (1 << 16)])
        os._exit(5)

    Connection._send_bytes = send_half  # type: ignore[attr-defined,method-assign]
    return Parsed(records=("x" * (8 << 20),))


def complain(data: bytes) -> Parsed[int]:
    raise ParseError("it is wrong", "do this")


def blunder(data: bytes) -> Parsed[int]:
    return Parsed(records=(1 // 0,))


def pid_of_worker(data: bytes) -> Parsed[int]:
    return Parsed(records=(os.getpid(),))


def job(parser: isolated.Parser, data: bytes = b"") -> Job:
    return parser, lambda: data


def said(results: list[Result]) -> list[object]:
    return [result.records[0] if isinstance(result, Parsed) else str(result) for result in results]


def test_results_come_in_order_however_long_each_takes() -> None:
    jobs = [job(length, b"x" * (number * 997 % 5_000)) for number in range(300)]
    assert said(list(parse_isolated(jobs))) == [number * 997 % 5_000 for number in range(300)]


def test_large_files_and_large_results() -> None:
    data = bytes(64 << 20)
    assert said(list(parse_isolated([job(length, data), job(length), job(length, data)]))) == [64 << 20, 0, 64 << 20]
    (result,) = parse_isolated([job(answer_at_length)])
    assert isinstance(result, Parsed)
    assert len(result.records[0]) == 64 << 20


def test_no_jobs_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated._Pool, "_start", lambda pool: pytest.fail("a process for nothing"))
    assert list(parse_isolated([])) == []


def test_jobs_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []

    def jobs() -> Iterator[Job]:
        for number in range(10_000):
            taken.append(number)
            yield job(length)

    results = parse_isolated(jobs())
    next(results)
    assert len(taken) < 100
    results.close()


def test_a_file_that_cannot_be_fetched_keeps_its_place() -> None:
    def fetch() -> bytes:
        raise BundleError("it is gone", "look again")

    results = list(parse_isolated([job(length, b"a"), (length, fetch), job(length, b"bb")]))
    assert said(results) == [1, "it is gone", 2]
    assert isinstance(results[1], BundleError)
    assert results[1].advice == "look again"


def test_what_a_parser_raises_is_its_result() -> None:
    results = list(parse_isolated([job(complain), job(blunder), job(length)]))
    assert said(results) == ["it is wrong", "cannot be read: ZeroDivisionError: integer division or modulo by zero", 0]
    assert isinstance(results[0], ParseError)
    assert results[0].advice == "do this"


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("parser", "reason"),
    [
        (gobble, "refused: reading it needs more memory than any such file should"),
        (gobble_at_once, "refused: reading it needs more memory than any such file should"),
        (spin, "refused: reading it takes more than 1 s of processor time"),
        (crash, "refused: it crashed the process that read it (exit status -11)"),
        (vanish, "refused: it crashed the process that read it (exit status 3)"),
        (be_killed, "refused: the process that read it was killed, most likely for memory"),
        (die_while_answering, "refused: it crashed the process that read it (exit status 4)"),
        (stop_half_way, "refused: it crashed the process that read it (exit status 5)"),
    ],
)
def test_a_hostile_file_costs_only_itself(parser: isolated.Parser, reason: str) -> None:
    started = time.monotonic()
    results = list(
        parse_isolated([job(length, b"a"), job(parser), job(length, b"bb"), job(parser), job(length, b"ccc")])
    )
    assert said(results) == [1, reason, 2, reason, 3]
    assert time.monotonic() - started < 60


@pytest.mark.usefixtures("forked")
def test_a_single_worker_is_replaced_each_time_it_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_MAX_WORKERS", 1)
    results = list(parse_isolated([job(vanish), job(length), job(vanish), job(vanish), job(length)]))
    assert [isinstance(result, Parsed) for result in results] == [False, True, False, False, True]


@pytest.mark.usefixtures("forked")
def test_a_sleeper_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "WALL_SECONDS", 2)
    started = time.monotonic()
    assert said(list(parse_isolated([job(sleep), job(length)]))) == ["refused: reading it takes more than 2 s", 0]
    assert time.monotonic() - started < 30


@pytest.mark.usefixtures("forked")
def test_memory_of_one_file_is_not_held_against_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_MAX_WORKERS", 1)
    jobs = [job(gobble), job(answer_at_length), job(gobble), job(answer_at_length)]
    assert [isinstance(result, Parsed) for result in parse_isolated(jobs)] == [False, True, False, True]


@pytest.mark.usefixtures("forked")
def test_processor_time_is_counted_per_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_MAX_WORKERS", 1)
    assert said(list(parse_isolated([job(busy)] * 4))) == [0] * 4


def busy(data: bytes) -> Parsed[int]:
    until = time.process_time() + 0.4
    while time.process_time() < until:
        pass
    return length(data)


@pytest.mark.usefixtures("forked")
def test_a_parent_that_maps_much_memory() -> None:
    """A process with torch and CUDA in it maps tens of GiB, far more than a worker may add."""
    with contextlib.closing(mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)):
        assert said(list(parse_isolated([job(length, b"abc"), job(gobble)])))[0] == 3


HOSTILE_DUMPS = {
    "exponential hash": b"\x80\x02}NN\x86" + b"q\x00h\x00\x86" * 60 + b"Ns.",
    "deep tuple as a key": b"\x80\x02}N" + b"N\x86" * 2_000_000 + b"Ns.",
    "code": pickle.dumps(os.getpid, 4),
}


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("data", HOSTILE_DUMPS.values(), ids=HOSTILE_DUMPS)
def test_hostile_dumps(data: bytes) -> None:
    good = dump([call("all_reduce")])
    jobs = [job(flight_recorder.parse, given) for given in (good, data, good)]
    assert [isinstance(result, Parsed) for result in parse_isolated(jobs)] == [True, False, True]


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("allowed", [0, 1])
def test_a_system_that_allows_few_processes(allowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = BaseProcess.start, [0]

    def start_some(process: BaseProcess) -> None:
        started[0] += 1
        if started[0] > allowed:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        start(process)

    monkeypatch.setattr(isolated, "_MAX_WORKERS", 4)
    monkeypatch.setattr(BaseProcess, "start", start_some)
    refusal = "no process to read it in can be started: Resource temporarily unavailable"
    expected = [1, 2, 3] if allowed else [refusal] * 3
    assert said(list(parse_isolated([job(length, b"x" * size) for size in (1, 2, 3)]))) == expected


def test_in_a_process_with_threads() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert isolated._start_method() == "spawn"
        jobs = [job(stacks.parse, b"[]"), job(stacks.parse, b"?"), job(flight_recorder.parse, dump([call("barrier")]))]
        assert [isinstance(result, Parsed) for result in parse_isolated(jobs)] == [True, False, True]
    finally:
        end.set()
        thread.join()


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("count", [1, 4])
def test_a_reader_that_stops_early_leaves_no_process(count: int) -> None:
    results = parse_isolated([job(length), *[job(sleep)] * count])
    assert said([next(results)]) == [0]
    results.close()


@pytest.mark.usefixtures("forked")
def test_an_error_of_ours_leaves_no_process() -> None:
    def fetch() -> bytes:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        list(parse_isolated([job(sleep), (length, fetch)]))


CALLER = """
import sys, time
sys.path.insert(0, {root!r})
from ncclprobe.parse.isolated import parse_isolated
from tests.unit.parse.test_isolated import job, pid_of_worker, sleep
results = parse_isolated([job(pid_of_worker), job(sleep), job(sleep)][:{count}] * 2)
print(next(results).records[0], flush=True)
{then}
"""


@contextlib.contextmanager
def caller(count: int, then: str) -> Iterator[tuple["subprocess.Popen[str]", psutil.Process]]:
    """Another process that parses, and one of its workers."""
    command = [sys.executable, "-c", CALLER.format(root=str(ROOT), count=count, then=then)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, psutil.Process(int(process.stdout.readline()))
        finally:
            process.kill()


def test_workers_end_when_their_parent_is_killed() -> None:
    with caller(1, "time.sleep(60)") as (process, worker):
        process.kill()
        worker.wait(10)


def test_an_interrupt_is_the_parents_alone() -> None:
    with caller(3, "next(results)") as (process, worker):
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        worker.wait(10)
        assert errors.count("Traceback") == 1
        assert errors.rstrip().endswith("KeyboardInterrupt")


def test_a_streamed_file_may_take_longer_the_larger_it_is(tmp_path: Path) -> None:
    (tmp_path / "large.log").touch()
    with (tmp_path / "large.log").open("wb") as file:
        file.truncate(100_000_000)
    assert isolated_worker.cpu_seconds(b"x" * 1000) == isolated_worker.CPU_SECONDS
    assert isolated_worker.cpu_seconds(tmp_path / "large.log") == isolated_worker.CPU_SECONDS + 10
    assert isolated_worker.cpu_seconds(tmp_path / "gone.log") == isolated_worker.CPU_SECONDS
