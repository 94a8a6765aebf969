"""State, wait channel and CPU time of real processes, at two looks."""

import os
import signal
import time

from ncclprobe.model.job import JobProcess, Role
from ncclprobe.parse import processes as process_format
from ncclprobe.probe import proc
from ncclprobe.probe.source import Context, Options
from ncclprobe.probe.sources import processes as source_module
from ncclprobe.probe.sources.processes import SOURCE
from tests.unit.probe.processes import running, wait_until
from tests.unit.probe.sources.context import collect, context, process

BUSY = "print('ready', flush=True)\nwhile True: pass"


def looked_at(given: Context) -> tuple[JobProcess, ...]:
    (found,), gaps = collect(SOURCE, given)
    assert not gaps
    return process_format.parse(found.data).records


def test_one_that_sleeps_and_one_that_works() -> None:
    with running() as asleep, running(BUSY) as busy:
        given = context(process(asleep), process(busy, 1), options=Options(interval_s=0.4))
        sleeping, working = looked_at(given)
    assert [look.state for look in sleeping.looks] == ["S", "S"]
    assert sleeping.looks[1].cpu_s - sleeping.looks[0].cpu_s < 0.1
    assert working.looks[1].cpu_s - working.looks[0].cpu_s > 0.05
    assert 0.35e9 < sleeping.looks[1].time_ns - sleeping.looks[0].time_ns < 5e9
    assert sleeping.looks[0].threads == 1


def test_one_that_is_stopped() -> None:
    with running() as pid:
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: (proc.stat(pid) or "?")[0] == "T", "it is stopped")
        (stopped,) = looked_at(context(process(pid)))
    assert {look.state for look in stopped.looks} == {"T"}


def test_one_that_is_gone_has_no_looks_and_one_that_ends_has_one(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    with running() as gone:
        pass
    with running() as pid:

        def end_meanwhile(_: float) -> None:
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

        monkeypatch.setattr(source_module.time, "sleep", end_meanwhile)
        first, second = looked_at(context(process(gone), process(pid, 1)))
    assert first.looks == ()
    alive, ended = (look.state for look in second.looks)
    assert alive in ("R", "S")
    assert ended == "Z"


def test_a_pid_that_has_become_another_process_has_no_second_look(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    real, starts = source_module.proc.stat, iter(["100", "200"])

    def with_other_start(pid: int) -> list[str] | None:
        fields = real(pid)
        return [*fields[:19], next(starts), *fields[20:]] if fields else None

    monkeypatch.setattr(source_module.proc, "stat", with_other_start)
    (one,) = looked_at(context(process(os.getpid())))
    assert len(one.looks) == 1


def test_the_second_look_comes_before_the_deadline() -> None:
    begin = time.monotonic()
    (one,) = looked_at(context(process(os.getpid()), options=Options(interval_s=60), deadline_s=1.3))
    assert len(one.looks) == 2
    assert time.monotonic() - begin < 3


def test_roles_are_kept_and_nothing_is_written_without_processes() -> None:
    with running() as pid:
        (launcher,) = looked_at(context(process(pid, None, Role.LAUNCHER)))
    assert (launcher.role, launcher.rank) == (Role.LAUNCHER, None)
    assert collect(SOURCE, context()) == ([], [])
