"""A command on this machine behaves as one over SSH: fed, read, bounded, ended."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ncclprobe.collect.hosts import Host
from ncclprobe.collect.transport import HostError, RemoteProcess
from ncclprobe.collect.transport.local import LocalTransport

HOST = Host(name="here", address="localhost")
Start = Callable[..., RemoteProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    processes: list[RemoteProcess] = []

    def begin(command: str, payload: bytes = b"", deadline_s: float = 20) -> RemoteProcess:
        processes.append(LocalTransport().start(HOST, command, payload, time.monotonic() + deadline_s))
        return processes[-1]

    yield begin
    for process in processes:
        process.close()


def read_all(process: RemoteProcess) -> bytes:
    return b"".join(iter(lambda: process.read(65_536), b""))


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_output_status_and_errors(start: Start) -> None:
    process = start("echo out; echo err >&2; exit 3")
    assert read_all(process) == b"out\n"
    assert process.finish() == (3, "err\n")


def test_a_payload_larger_than_any_pipe_goes_in_while_output_comes_out(start: Start) -> None:
    payload = os.urandom(6_000_000)
    assert read_all(start("head -c 6000000", payload)) == payload


def test_standard_input_stays_open_until_close(start: Start, tmp_path: Path) -> None:
    process = start(f"echo ready; cat >{tmp_path}/got; echo end >{tmp_path}/end", b"payload")
    assert process.read(100) == b"ready\n"
    time.sleep(0.2)
    assert not (tmp_path / "end").exists()
    process.close()
    assert (tmp_path / "got").read_bytes() == b"payload"
    assert (tmp_path / "end").exists()


def test_the_deadline_ends_reading(start: Start) -> None:
    process = start("echo early; sleep 60", deadline_s=0.5)
    assert process.read(100) == b"early\n"
    begin = time.monotonic()
    with pytest.raises(HostError, match="deadline"):
        process.read(100)
    with pytest.raises(HostError, match="deadline"):
        process.finish()
    assert time.monotonic() - begin < 2


def test_the_deadline_has_passed_already() -> None:
    with pytest.raises(HostError, match="deadline"):
        LocalTransport().start(HOST, "true", b"", time.monotonic() - 1)


def test_the_deadline_ends_the_wait_for_a_command_that_closed_its_output(start: Start) -> None:
    process = start("exec >&- 2>&-; sleep 60", deadline_s=0.5)
    assert read_all(process) == b""
    with pytest.raises(HostError, match="deadline"):
        process.finish()


def test_only_the_end_of_a_flood_of_errors_is_kept(start: Start) -> None:
    process = start("head -c 3000000 /dev/zero | tr '\\0' x >&2; echo last >&2; echo done")
    assert read_all(process) == b"done\n"
    status, errors = process.finish()
    assert status == 0
    assert errors.endswith("xlast\n")
    assert len(errors) == 4096


def test_a_signal_shows_as_sh_shows_it(start: Start) -> None:
    process = start("kill -9 $$")
    assert read_all(process) == b""
    assert process.finish()[0] == 137


def test_the_payload_may_be_left_unread(start: Start) -> None:
    process = start("echo no thanks", bytes(1_000_000))
    assert read_all(process) == b"no thanks\n"
    assert process.finish()[0] == 0


def test_close_ends_all_that_the_command_started(start: Start) -> None:
    process = start("sleep 60 & echo $!; trap '' TERM; while :; do sleep 0.1; done")
    pid = int(process.read(100))
    begin = time.monotonic()
    process.close()
    process.close()
    assert is_gone(pid)
    assert time.monotonic() - begin < 6


def test_close_lets_a_command_that_prints_for_ever_clean_up(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    mark.touch()
    process = start(f"yes & y=$!; cat >/dev/null; kill $y; rm {mark}", b"x" * 1000)
    process.read(10)
    process.close()
    assert not mark.exists()


def test_close_while_another_thread_reads(start: Start) -> None:
    process = start("sleep 60")
    seen: list[object] = []

    def read() -> None:
        try:
            seen.append(process.read(10))
        except HostError as error:
            seen.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.1)
    process.close()
    reader.join(5)
    assert len(seen) == 1
    assert seen[0] == b"" or isinstance(seen[0], HostError)


def test_many_at_once(start: Start) -> None:
    before = threading.active_count()
    processes = [start(f"head -c 100000 | wc -c; echo {number}", bytes(100_000)) for number in range(20)]
    assert [read_all(process).split() for process in processes] == [
        [b"100000", str(number).encode()] for number in range(20)
    ]
    for process in processes:
        process.close()
    time.sleep(0.05)
    assert threading.active_count() <= before + 1


def test_no_process_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: (_ for _ in ()).throw(OSError(11, "no more processes")))
    with pytest.raises(HostError, match="starts no process"):
        LocalTransport().start(HOST, "true", b"", time.monotonic() + 5)
