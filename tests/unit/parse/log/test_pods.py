"""What Kubernetes and Docker say of ended containers, and where and as which rank a pod runs."""

import pytest

from ncclprobe.model.log import Died, LogEvent, Setting, WorldSize
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.pods import RECOGNIZER


def heard(*texts: str) -> list[LogEvent]:
    recognizer = RECOGNIZER()
    lines = [LogLine(number=number, text=text) for number, text in enumerate(texts, 1)]
    return [*(event for line in lines for event in recognizer.feed(line)), *recognizer.end()]


DESCRIBED = """\
Name:             train-worker-3
Node:             node03/10.0.0.3
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Tue, 03 Mar 2026 10:00:00 +0000""".splitlines()


def test_a_described_pod() -> None:
    node, event = heard(*DESCRIBED)
    assert isinstance(event.what, Died)
    assert isinstance(node.what, Setting)
    assert (node.what.name, node.host) == ("node", "train-worker-3")
    assert (event.host, event.what.signal, event.what.is_memory) == ("train-worker-3", 9, True)
    *_, cut = heard(*DESCRIBED[:-2])
    assert cut.what == event.what


def pod(name: str, code: int, reason: str, end: str, *settings: str) -> list[str]:
    return [
        f"Name:             {name}",
        "    State:          Terminated",
        f"      Reason:       {reason}",
        f"      Exit Code:    {code}",
        "      Started:      Thu, 14 May 2026 01:11:40 +0000",
        f"      Finished:     Thu, 14 May 2026 {end} +0000",
        *(f"      {setting}" for setting in settings),
        "",
    ]


def test_described_pods_end_at_their_own_times() -> None:
    events = heard(*pod("a-0", 1, "Error", "03:42:19"), *pod("a-1", 137, "OOMKilled", "03:12:05"))
    late, early = (event.when_ns for event in events)
    assert late is not None
    assert early is not None
    assert late - early == (30 * 60 + 14) * 10**9


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        (["  terminated:", "    exitCode: 137", '    finishedAt: "2026-05-14T03:42:19Z"', "    reason: OOMKilled"], 19),
        (['  "OOMKilled": true,', '  "ExitCode": 137,', '  "FinishedAt": "2026-05-14T03:42:21.81Z"'], 21),
        (['  "OOMKilled": true,', '  "ExitCode": 137,', '  "FinishedAt": "0001-01-01T00:00:00Z"'], None),
        (["    State: Terminated", "      Reason: Error", "      Exit Code: 1", "      Finished: Thu, 99 May"], None),
    ],
    ids=["yaml", "docker", "never", "no time"],
)
def test_the_time_of_an_end(lines: list[str], seconds: "int | None") -> None:
    (event,) = heard(*lines)
    assert (event.when_ns and event.when_ns // 10**9 % 60) == seconds


@pytest.mark.parametrize(
    ("settings", "rank"),
    [
        (("nvidia.com/gpu:  1", "WORLD_SIZE:  4", "RANK:  2"), 2),
        (("PET_NPROC_PER_NODE:  1", "RANK:  2"), 2),
        (("nvidia.com/gpu:  8", "WORLD_SIZE:  4", "RANK:  2"), None),
        (("WORLD_SIZE:  4", "RANK:  2"), None),
    ],
    ids=["one GPU", "one process", "a launcher of eight", "not known"],
)
def test_a_pod_of_one_process_is_its_rank(settings: tuple[str, ...], rank: "int | None") -> None:
    events = [event for event in heard(*pod("a-1", 1, "Error", "03:42:19", *settings)) if event.rank is not None]
    assert {(event.rank, event.host) for event in events} == ({(rank, "a-1")} if rank is not None else set())
    assert [event.what for event in events if isinstance(event.what, WorldSize)] == [
        WorldSize(size=4) for setting in settings if rank is not None and setting.startswith("WORLD_SIZE")
    ]


@pytest.mark.parametrize(
    "row",
    [
        "moe-worker-0      1/1     Terminating   0          5h    10.244.2.9    ip-10-9-0-13   <none>           <none>",
        "moe-worker-0      0/1     Error   3 (2m ago)   5h    <none>    ip-10-9-0-13   <none>           <none>",
    ],
)
def test_a_wide_row_tells_the_node(row: str) -> None:
    settings = [event for event in heard(row) if isinstance(event.what, Setting)]
    assert [(event.host, event.what) for event in settings] == [
        ("moe-worker-0", Setting(name="node", value="ip-10-9-0-13"))
    ]


@pytest.mark.parametrize(
    ("lines", "status", "signal", "is_memory"),
    [
        (["    State:          Terminated", "      Reason:       Error", "      Exit Code:    1"], 1, None, False),
        (["    Last State:     Terminated", "      Reason:       Error", "      Exit Code:    137"], None, 9, False),
        (["      terminated:", "        exitCode: 137", "        reason: OOMKilled"], None, 9, True),
        (['            "OOMKilled": true,', '            "ExitCode": 137,'], None, 9, True),
        (["Reason:           Evicted", "Message:          The node was low on resource: memory. Th"], None, 9, True),
        (["train-worker-3   0/1   OOMKilled   1 (2m ago)   10m"], None, 9, True),
        (["  Warning  OOMKilling  4m  kernel-monitor  out of memory: Killed process 59246 (p)"], None, 9, True),
    ],
)  # fmt: skip
def test_containers(lines: list[str], status: int | None, signal: int | None, is_memory: bool) -> None:
    (event,) = heard(*lines)
    assert isinstance(event.what, Died)
    assert (event.what.exit_status, event.what.signal, event.what.is_memory) == (status, signal, is_memory)


def test_a_container_that_ended_well() -> None:
    assert heard("    State:          Terminated", "      Reason:       Completed", "      Exit Code:    0") == []
    assert heard("    State:          Running", "      Started:      Tue", "  exitCode: 0") == []
