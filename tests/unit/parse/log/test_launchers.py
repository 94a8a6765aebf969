"""What launchers say of the processes they started."""

from typing import Any

import pytest

from ncclprobe.model.log import Died, Left, LogEvent, Restarted, StoppedByLauncher
from ncclprobe.parse.log.launchers import NEEDLES, RECOGNIZER
from ncclprobe.parse.log.line import LogLine


def heard(*texts: str, **fields: Any) -> list[LogEvent]:
    recognizer = RECOGNIZER()
    lines = [LogLine(number=number, text=text, **fields) for number, text in enumerate(texts, 1)]
    return [*(event for line in lines for event in recognizer.feed(line)), *recognizer.end()]


# text, exit status, signal, who
DEATHS: list[tuple[str, int | None, int | None, dict[str, Any]]] = [
    ("failed (exitcode: -9) local_rank: 5 (pid: 59246) of binary: /opt/venv/bin/python3", None, 9,
     {"local_rank": 5, "pid": 59246}),
    ("ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: p", 1,
     None, {"local_rank": 0, "pid": 7}),
    ("torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGKILL", None, 9,
     {"local_rank": 2}),
    ("Exception: process 0 terminated with exit code 3", 3, None, {"local_rank": 0}),
    ("[INFO] [launch.py:321:sigkill_handler] Process 2203 exits with return code = -9", None, 9, {"pid": 2203}),
    ("[ERROR] [launch.py:321] ['/usr/bin/python', '-u', 'a.py', '--local_rank=3', '--x'] exits with return code = 1",
     1, None, {"local_rank": 3}),
    ("mpirun noticed that process rank 3 with PID 4021 on node node02 exited on signal 9 (Killed).", None, 9,
     {"rank": 3, "pid": 4021, "host": "node02"}),
    ("prterun noticed that process rank 0 with PID 0 on node node02 exited on signal 11 (Segmentation).", None, 11,
     {"rank": 0, "pid": None, "host": "node02"}),
    ("MPI_ABORT was invoked on rank 4 in communicator MPI_COMM_WORLD with errorcode 1.", 1, None, {"rank": 4}),
    ("pdsh@head: node03: ssh exited with exit code 255", 255, None, {"host": "node03"}),
    ("run.sh: line 14: 59246 Killed                  python train.py", None, 9, {"pid": 59246}),
    ("bash: line 1:  77 Segmentation fault      (core dumped) python x", None, 11, {"pid": 77}),
    ("[rank: 2] Child process with PID 6204 terminated with code -11. Forcefully terminating all other processes", None,
     11, {"rank": 2, "pid": 6204}),
    ("ERROR:composer.cli.launcher:Rank 5 crashed with exit code -6.", None, 6, {"rank": 5}),
    ("Global rank 3 (PID 703) exited with code 1", 1, None, {"rank": 3, "pid": 703}),
    ("INFO exited: train_3 (terminated by SIGKILL; not expected)", None, 9, {}),
    ("INFO exited: train_3 (exit status 137; not expected)", None, 9, {}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "status", "signal", "who"), DEATHS)
def test_a_process_died(text: str, status: int | None, signal: int | None, who: dict[str, Any]) -> None:
    (event,) = heard(text, rank=63)  # a label of the launcher's line is not the rank
    assert isinstance(event.what, Died)
    assert (event.what.exit_status, event.what.signal) == (status, signal)
    expected = {"rank": None, "local_rank": None, "pid": None, "host": None} | who
    assert {name: getattr(event, name) for name in expected} == expected
    assert any(needle in text.encode() for needle in NEEDLES)


@pytest.mark.parametrize(
    ("text", "pid"),
    [
        ("torch/distributed/elastic/multiprocessing/api.py:908] Sending process 59241 closing signal SIGTERM", 59241),
        ("WARNING: Unable to shutdown process 12 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL", 12),
        ("[INFO] [launch.py:316:sigkill_handler] Killing subprocess 2201", 2201),
        ("Received Signals.SIGTERM death signal, shutting down workers", None),
    ],
)
def test_a_process_was_stopped(text: str, pid: int | None) -> None:
    (event,) = heard(text)
    assert isinstance(event.what, StoppedByLauncher)
    assert event.pid == pid


def test_a_process_ended_well() -> None:
    (event,) = heard("[INFO] [launch.py:350:main] Process 2203 exits successfully.")
    assert isinstance(event.what, Left)
    assert event.pid == 2203


NEW_TABLE = """\
======================================================
train.py FAILED
------------------------------------------------------
Failures:
[1]:
  time      : 2026-03-30_16:20:47
  host      : node02
  rank      : 12 (local_rank: 4)
  exitcode  : -6 (pid: 59245)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 59245
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-03-30_16:20:45
  host      : node02
  rank      : 13 (local_rank: 5)
  exitcode  : -9 (pid: 59246)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 59246
======================================================""".splitlines()
OLD_TABLE = """\
Root Cause:
[0]:
  time: 2021-06-11_10:00:00
  rank: 3 (local_rank: 1)
  exitcode: 1 (pid: 1234)
  error_file: <N/A>
  msg: "Process failed with exitcode 1"
=======================================
Other Failures:
  <NO_OTHER_FAILURES>""".splitlines()


def test_the_table_of_torchrun() -> None:
    other, root = heard(*NEW_TABLE)
    assert isinstance(other.what, Died)
    assert isinstance(root.what, Died)
    assert (other.rank, other.what.signal, other.what.is_first) == (12, 6, False)
    assert (root.rank, root.local_rank, root.host, root.pid) == (13, 5, "node02", 59246)
    assert (root.what.signal, root.what.is_first, root.when_ns) == (9, True, 1774887645 * 10**9)
    assert root.quote == "exitcode  : -9 (pid: 59246)"


def test_the_table_of_older_versions() -> None:
    (event,) = heard(*OLD_TABLE)
    assert isinstance(event.what, Died)
    assert (event.rank, event.pid, event.what.exit_status, event.what.is_first) == (3, 1234, 1, True)


@pytest.mark.parametrize("cut", range(len(NEW_TABLE) + 1))
def test_a_cut_table_tells_what_it_can(cut: int) -> None:
    ranks = [event.rank for event in heard(*NEW_TABLE[:cut])]
    assert ranks in ([], [12], [12, 13], [12, None])


def test_the_first_process_of_mpirun() -> None:
    (event,) = heard("The first process to do so was:", "", "  Process name: [[63527,1],3]", "  Exit code:    1")
    assert isinstance(event.what, Died)
    assert (event.rank, event.what.exit_status, event.what.is_first) == (3, 1, True)


def test_the_box_of_hydra() -> None:
    box = ["=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", "=   RANK 3 PID 4021 RUNNING AT node02",
           "=   KILLED BY SIGNAL: 9 (Killed)", "===="]  # fmt: skip
    (event,) = heard(*box)
    assert isinstance(event.what, Died)
    assert (event.rank, event.pid, event.host, event.what.signal) == (3, 4021, "node02", 9)


@pytest.mark.parametrize(
    "text",
    [
        "[default] Worker group FAILED. 2/3 attempts left; will restart worker group",
        "[default] Restarting worker group",
    ],
)
def test_a_restart(text: str) -> None:
    (event,) = heard(text, rank=3)
    assert (event.rank, event.what) == (None, Restarted())


def test_what_deepspeed_kills_the_others_for_is_the_first() -> None:
    (event,) = heard("['/usr/bin/python', '-u', 'a.py', '--local_rank=3'] exits with return code = -11")
    assert isinstance(event.what, Died)
    assert event.what.is_first


def test_a_worker_of_vllm_that_is_gone() -> None:
    (event,) = heard("Worker proc VllmWorker-1 died unexpectedly, shutting down executor.")
    assert isinstance(event.what, Died)
    assert (event.rank, event.what.exit_status, event.what.signal) == (1, None, None)


def test_a_shell_shows_the_environment_of_the_killed() -> None:
    (event,) = heard("./run.sh: line 14: 40122 Killed      RANK=3 LOCAL_RANK=1 python train.py")
    assert (event.rank, event.pid) == (3, 40122)
