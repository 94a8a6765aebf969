"""A job over hosts, which stand for this machine, without SSH: how it goes, how it ends, and that nothing stays."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ncclprobe.collect.hosts import Host
from ncclprobe.collect.transport.local import LocalTransport
from ncclprobe.model.errors import NcclprobeError
from ncclprobe.repro import watched_job
from ncclprobe.repro.catalog import find
from ncclprobe.repro.hosts_job import HostsJob
from ncclprobe.repro.launch_hosts import launch_on_hosts
from ncclprobe.repro.places import Place, Process, at_each
from ncclprobe.repro.reproducer import JobState
from ncclprobe.repro.supervisor import processes_of

Start = Callable[..., HostsJob]
SLEEP = "print('step 1 loss 0', flush=True); time.sleep(600)\n"


class Silent:
    """A process that says nothing and ends when it is closed."""

    def __init__(self) -> None:
        self.is_closed = False

    def read(self, size: int) -> bytes:
        return b""

    def finish(self) -> tuple[int | None, str]:
        return None, ""

    def close(self) -> None:
        self.is_closed = True


class Cut(Silent):
    """A supervisor that has started its launcher, whose connection breaks when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = threading.Event()
        self._said = iter(
            (b"ncclprobe-repro-starts\n4711\n", b'{"ranks": {"2": true, "x": 1}, "texts": {"../x": 3}}\n')
        )

    def read(self, size: int) -> bytes:
        for said in self._said:
            return said
        self.is_cut.wait(20)
        raise NcclprobeError("the connection was lost", "collect again")


def here(name: str) -> Place:
    return Place(name=name, start=partial(LocalTransport().start, Host(name=name, address=name)))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Launch a program on two hosts, whose files are below `tmp_path`; all that stays is an error."""
    (tmp_path / "t").mkdir()
    (tmp_path / "torch.py").touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(watched_job, "_QUIET_S", 0.4)
    program = tmp_path / "train.py"

    def start(code: str, *, ranks: int = 3, fixed: bool = False, places: tuple[Place, ...] = ()) -> HostsJob:
        program.write_text(f"import os, sys, time\n{code}")
        repro = replace(find("mismatched-logging"), program=str(program))
        chosen = places or (here("a"), here("b"))
        return launch_on_hosts(repro, chosen, ranks=ranks, python=sys.executable, at_step=1, fixed=fixed)

    yield start
    assert list((tmp_path / "t").iterdir()) == []


def left_of(job: HostsJob) -> list[int]:
    return [pid for host in (0, 1) for pid in processes_of(f"{job.run_id}-{host}")]


def test_a_stuck_job_is_seen_told_of_and_ended(start: Start) -> None:
    with start(SLEEP) as job:
        assert job.wait_until_stuck(timeout_s=30) is JobState.STUCK
        assert sorted(job.pids) == [0, 1, 2]
        assert job.logs.steps() == {0: 1, 1: 1, 2: 1}
        pids = job.pids
        assert job.processes == f"a: rank 0: {pids[0]}, rank 1: {pids[1]}; b: rank 2: {pids[2]}"
        assert job.wait(timeout_s=0) is None
        assert len(left_of(job)) == 5, "three ranks and two launchers"
    assert left_of(job) == []
    assert job.wait() == -signal.SIGKILL
    job.stop()


def test_the_highest_exit_status_of_all_hosts_is_that_of_the_job(start: Start) -> None:
    with start("sys.exit(int(os.environ['RANK']))", fixed=True) as job:
        assert job.wait(timeout_s=30) == 2


def test_all_that_was_printed_has_come_when_the_job_has_ended(start: Start) -> None:
    code = "print('x' * 100_000)\nprint('step', 7 + int(os.environ['RANK']))\nraise ValueError('no')\n"
    with start(code) as job:
        assert job.wait_until_stuck(timeout_s=30) is JobState.ENDED
        assert job.wait() == 1
        assert job.logs.failure() == "rank 0: ValueError: no"
        assert set(job.logs.sizes()) == {f"logs/train-rank{rank}.out" for rank in range(3)}
        assert min(job.logs.sizes().values()) > 100_000
        assert b"ValueError: no" in job.logs.files()["logs/train-rank2.out"]


def test_a_supervisor_that_is_killed_is_the_end_of_its_ranks(start: Start) -> None:
    with start(SLEEP) as job:
        assert job.wait_until_stuck(timeout_s=30) is JobState.STUCK
        stat = Path(f"/proc/{job.pids[2]}/stat").read_text().rpartition(")")[2].split()
        supervisor = int(Path(f"/proc/{stat[1]}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(supervisor, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while 2 in job.pids:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert job.wait(timeout_s=0) is None, "the ranks of the other host live"


def then(begin: Callable[[str, bytes, float], Process]) -> Place:
    """A host that is looked at as it is; what is started on it then is started by `begin`."""
    starts = iter((here("b").start, begin))

    def start_next(command: str, payload: bytes, deadline: float) -> Process:
        return next(starts)(command, payload, deadline)

    return Place(name="b", start=start_next)


def test_a_host_where_the_job_cannot_start_is_named_and_the_others_end(start: Start) -> None:
    def without_room(command: str, payload: bytes, deadline: float) -> Process:
        return here("b").start(command, payload.replace(b'"directory": "', b'"directory": "no/such/'), deadline)

    with pytest.raises(NcclprobeError, match=r"could not be started on b: .*No such file"):
        start(SLEEP, places=(here("a"), then(without_room)))


def test_a_connection_that_is_lost_names_its_host(start: Start) -> None:
    cut = Cut()
    with start(SLEEP, places=(here("a"), then(lambda *_: cut))) as job:
        assert job.wait(timeout_s=0) is None
        cut.is_cut.set()
        with pytest.raises(NcclprobeError, match="b: the connection was lost"):
            job.wait(timeout_s=10)


def test_when_one_host_fails_what_runs_on_the_others_is_ended() -> None:
    silent = Silent()

    def work(place: Place) -> Silent:
        if place.name == "bad":
            raise NcclprobeError("it is down", "look at it")
        return silent

    places = [Place(name=name, start=lambda *_: silent) for name in ("good", "bad")]
    with pytest.raises(NcclprobeError, match="bad: it is down"):
        at_each(places, work, Silent.close)
    assert silent.is_closed
