"""What Slurm and systemd say of ended processes."""

import pytest

from ncclprobe.model.log import Died, HostDown, LogEvent, StoppedByLauncher
from ncclprobe.parse.log.host_lists import expand
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.schedulers import RECOGNIZER


def heard(*texts: str) -> list[LogEvent]:
    recognizer = RECOGNIZER()
    lines = [LogLine(number=number, text=text, rank=7) for number, text in enumerate(texts, 1)]
    return [*(event for line in lines for event in recognizer.feed(line)), *recognizer.end()]


@pytest.mark.parametrize(
    ("text", "status", "signal", "is_memory"),
    [
        ("srun: error: node02: task 1: Out Of Memory", None, 9, True),
        ("srun: error: node02: task 3: Killed", None, 9, False),
        ("srun: error: node02: task 3: Exited with exit code 1", 1, None, False),
        ("srun: error: node02: task 3: Exited with exit code 139", None, 11, False),
        ("srun: error: node02: task 3: Segmentation fault (core dumped)", None, 11, False),
        ("srun: error: node02: task 3: Bus error", None, 7, False),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=4211.0. Some of the step tasks", None, 9, True),
        ("slurmstepd: error: Detected 3 oom-kill event(s) in step 4211.0 cgroup.", None, 9, True),
        ("Mar 01 10:00:00 node1 systemd-oomd[901]: Killed /user.slice/a due to memory pressure for /x", None, 9, True),
        ("systemd[1]: train.service: Failed with result 'oom-kill'.", None, 9, True),
        ("systemd[1]: train.service: Main process exited, code=killed, status=11/SEGV", None, 11, False),
        ("systemd[1]: train.service: Main process exited, code=exited, status=3/NOTIMPLEMENTED", 3, None, False),
    ],
)
def test_deaths(text: str, status: int | None, signal: int | None, is_memory: bool) -> None:
    (event,) = heard(text)
    assert isinstance(event.what, Died)
    assert (event.what.exit_status, event.what.signal, event.what.is_memory) == (status, signal, is_memory)
    assert event.rank is None  # a task is not always a rank


def test_tasks_of_several_hosts() -> None:
    events = heard("srun: error: node[01-02]: tasks 0-2,7: Exited with exit code 1")
    assert [event.what.reason.split(":")[0] for event in events if isinstance(event.what, Died)] == [
        "task 0", "task 1", "task 2", "task 7",
    ]  # fmt: skip
    assert {event.host for event in events} == {None}
    assert heard("srun: error: node03: task 5: Killed")[0].host == "node03"


def test_kills_after_a_cancelled_step_are_echoes() -> None:
    cancelled = "slurmstepd: error: *** STEP 123.0 ON node01 CANCELLED AT 2026-03-01T10:00:00 DUE TO TIME LIMIT ***"
    for first in (cancelled, "srun: Terminating StepId=123.0", "srun: Job step aborted: Waiting up to 32 seconds"):
        events = heard(first, "srun: error: node01: task 0: Killed", "srun: error: node01: task 1: Terminated")
        assert [type(event.what) for event in events] == [StoppedByLauncher] * 3


@pytest.mark.parametrize(
    "text",
    [
        "srun: error: Node failure on node03",
        "slurmstepd: error: *** STEP 1.0 ON node01 CANCELLED AT 2026-03-01T10:00:00 DUE TO NODE node03 FAILURE ***",
        "srun: error: Task launch for StepId=1.0 failed on node node03: Communication connection failure",
    ],
)
def test_a_failed_node(text: str) -> None:
    (event,) = heard(text)
    assert isinstance(event.what, HostDown)
    assert event.what.host == event.host == "node03"


def labelled(*lines: tuple[int, int | None]) -> list[LogEvent]:
    """Lines behind srun's labels that name a rank, then a killed task."""
    said = [LogLine(number=1, text="x", speaker=f"{task}:", rank=rank) for task, rank in lines]
    recognizer = RECOGNIZER()
    killed = LogLine(number=2, text="srun: error: node02: task 5: Killed")
    return [event for line in (*said, killed) for event in recognizer.feed(line)]


@pytest.mark.parametrize(
    ("lines", "rank"),
    [
        (((0, 0), (3, 3), (4, None)), 5),
        (((0, 0),), None),  # every first task has rank 0
        (((0, 0), (1, 8)), None),  # tasks are launchers
        (((0, 0), (1, 1), (0, 2)), None),
    ],
)
def test_a_task_is_a_rank_where_labels_show_it(lines: tuple[tuple[int, int | None], ...], rank: int | None) -> None:
    assert [event.rank for event in labelled(*lines)] == [rank]


def test_lists_of_hosts() -> None:
    assert expand("node[01-03,7],login1,gpu[1-2]-ib") == [
        "node01", "node02", "node03", "node7", "login1", "gpu1-ib", "gpu2-ib",
    ]  # fmt: skip
    assert len(expand("n[0-999999999]", 10)) == 10
    assert expand("n[3") == ["n", "3"] or expand("n[3")  # damaged: anything but an error
