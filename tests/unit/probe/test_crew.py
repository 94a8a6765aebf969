"""A source that hangs, fails, dies, floods or forks is its own failure, and the others do not notice."""

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ncclprobe.model.manifest import Outcome
from ncclprobe.probe import worker
from ncclprobe.probe.crew import Crew, Ending, Task
from ncclprobe.probe.worker import Message
from tests.unit.probe.processes import in_child, is_gone, wait_until

Produce = Callable[[], Iterator[Message]]


def good() -> Iterator[Message]:
    yield {"good": os.getpid()}


def run(*produces: Produce, timeout_s: float = 20, deadline_s: float = 30) -> tuple[dict[str, Ending], list[Message]]:
    """Runs them beside a good one, and sees to it that this one is complete."""
    taken: list[Message] = []
    crew = Crew(time.monotonic() + deadline_s)
    tasks = [
        Task(name=f"task{number}", produce=produce, timeout_s=timeout_s) for number, produce in enumerate(produces)
    ]
    tasks.append(Task(name="good", produce=good, timeout_s=20))
    endings = {ending.name: ending for ending in crew.run(tasks, lambda name, message: taken.append(message))}
    assert endings.pop("good").outcome is Outcome.COMPLETE
    assert len(endings) == len(produces)
    return endings, [message for message in taken if "good" not in message]


def test_messages_come_in_order_and_whole_however_the_pipe_cuts_them() -> None:
    def produce() -> Iterator[Message]:
        for number in range(50):
            yield {"number": number, "text": "é" * 20_000}

    endings, taken = run(produce)
    assert [message["number"] for message in taken] == list(range(50))
    assert all(message["text"] == "é" * 20_000 for message in taken)
    assert endings["task0"].outcome is Outcome.COMPLETE
    assert endings["task0"].why == ""


def test_one_that_hangs_is_timed_out_and_what_it_sent_is_kept() -> None:
    def produce() -> Iterator[Message]:
        yield {"pid": os.getpid()}
        time.sleep(600)

    begin = time.monotonic()
    endings, taken = run(produce, timeout_s=0.5)
    assert endings["task0"].outcome is Outcome.TIMED_OUT
    assert time.monotonic() - begin < 3
    wait_until(lambda: is_gone(taken[0]["pid"]), "the worker has ended")


def test_the_deadline_ends_all() -> None:
    def produce() -> Iterator[Message]:
        time.sleep(600)
        yield {}

    begin = time.monotonic()
    endings, _ = run(produce, produce, produce, deadline_s=0.7)
    assert {ending.outcome for ending in endings.values()} == {Outcome.TIMED_OUT}
    assert time.monotonic() - begin < 3


def test_one_that_is_stopped() -> None:
    def produce() -> Iterator[Message]:
        os.kill(os.getpid(), signal.SIGSTOP)
        yield {}

    endings, _ = run(produce, timeout_s=0.5)
    assert endings["task0"].outcome is Outcome.TIMED_OUT


def test_one_that_ignores_every_signal_it_can() -> None:
    def produce() -> Iterator[Message]:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        yield {"pid": os.getpid()}
        time.sleep(600)

    _, taken = run(produce, timeout_s=0.5)
    wait_until(lambda: is_gone(taken[0]["pid"]), "the worker has ended")


def die_by_signal() -> Iterator[Message]:
    yield {"sent": 1}
    os.kill(os.getpid(), signal.SIGKILL)


def exit_hard() -> Iterator[Message]:
    yield {"sent": 1}
    os._exit(7)


def exit_softly() -> Iterator[Message]:
    yield {"sent": 1}
    raise SystemExit(3)


def fail() -> Iterator[Message]:
    yield {"sent": 1}
    raise ValueError("no such luck")


@pytest.mark.parametrize(
    ("produce", "why"),
    [
        (die_by_signal, "it was killed by SIGKILL"),
        (exit_hard, "it exited with status 7"),
        (exit_softly, "SystemExit: 3"),
        (fail, "ValueError: no such luck"),
    ],
)
def test_one_that_dies_has_failed_and_what_it_sent_is_kept(produce: Produce, why: str) -> None:
    endings, taken = run(produce)
    assert (endings["task0"].outcome, endings["task0"].why) == (Outcome.FAILED, why)
    assert taken == [{"sent": 1}]


@pytest.mark.parametrize("text", ["not json", "[1]", "[" * 100_000, "\udcff\udcfe", "x" * 3_000_000, '{"a": 1}{'])
def test_one_that_sends_what_is_no_message_has_failed(text: str) -> None:
    def produce() -> Iterator[Message]:
        yield {"sent": 1}
        raw = SimpleNamespace(encode=lambda: text.encode("utf-8", "surrogateescape"))
        worker.json = SimpleNamespace(dumps=lambda _: raw)  # type: ignore[assignment]
        yield {}
        time.sleep(600)

    endings, taken = run(produce)
    assert endings["task0"].outcome is Outcome.FAILED
    assert taken == [{"sent": 1}]


def test_a_flood_does_not_starve_the_others_and_ends_at_its_limit() -> None:
    def produce() -> Iterator[Message]:
        for number in itertools.count():
            yield {"number": number}

    begin = time.monotonic()
    endings, _ = run(produce, timeout_s=1.0)
    assert endings["task0"].outcome is Outcome.TIMED_OUT
    assert time.monotonic() - begin < 4


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    def produce() -> Iterator[Message]:
        process = subprocess.Popen(["sleep", "600"])
        grandchild = os.fork()  # holds the pipe open
        if grandchild == 0:
            time.sleep(600)
        yield {"pids": [process.pid, grandchild]}

    endings, taken = run(produce)
    assert endings["task0"].outcome is Outcome.COMPLETE
    for pid in taken[0]["pids"]:
        wait_until(lambda pid=pid: is_gone(pid), "the grandchild has ended")  # type: ignore[misc]


def test_it_has_no_standard_streams_to_spoil(capfd: pytest.CaptureFixture[str]) -> None:
    def produce() -> Iterator[Message]:
        os.write(1, b"noise")
        os.write(2, b"noise")
        yield {"input": os.read(0, 10).decode()}

    _, taken = run(produce)
    assert taken == [{"input": ""}]
    assert capfd.readouterr() == ("", "")


def test_nobody_listens_any_more() -> None:
    def produce() -> Iterator[Message]:
        time.sleep(600)
        yield {}

    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    crew = Crew(time.monotonic() + 30, listener=write_fd)
    with pytest.raises(BrokenPipeError):
        crew.run([Task(name="x", produce=produce, timeout_s=30)], lambda *_: None)
    crew.stop()
    os.close(write_fd)


def test_workers_die_with_a_crew_that_is_killed(tmp_path: Path) -> None:
    def produce() -> Iterator[Message]:
        (tmp_path / "pid").write_text(str(os.getpid()))
        (tmp_path / "ready").touch()
        time.sleep(600)
        yield {}

    def be_killed() -> int:
        killed = os.fork()
        if killed == 0:
            Crew(time.monotonic() + 60).run([Task(name="x", produce=produce, timeout_s=60)], lambda *_: None)
        wait_until((tmp_path / "ready").exists, "the worker works")
        os.kill(killed, signal.SIGKILL)
        os.waitpid(killed, 0)
        return int((tmp_path / "pid").read_text())

    pid = in_child(be_killed)
    wait_until(lambda: is_gone(pid), "the worker has died with its crew")


def test_nothing_to_do_is_done_at_once() -> None:
    assert Crew(time.monotonic() + 10).run([], lambda *_: None) == []


def test_no_descriptor_and_no_zombie_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        run(fail, exit_hard, die_by_signal)
    assert len(os.listdir("/proc/self/fd")) == before
