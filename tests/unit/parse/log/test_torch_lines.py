"""Lines of torch's watchdog and heartbeat monitor, by release."""

# ruff: noqa: E501  (lines of logs stay whole)

from typing import Any

import pytest

from ncclprobe.model.log import (
    Aborted,
    DumpSignal,
    DumpWritten,
    Failure,
    GilStuck,
    GroupJoined,
    GroupProgress,
    LogEvent,
    LogGroup,
    Raised,
    RemoteError,
    WatchdogStuck,
    WorkTimeout,
    WorldSize,
)
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.torch_lines import TorchLines

WORLD = LogGroup(name="0", description="default_pg", group_rank=3)
OF_WORLD = "[PG ID 0 PG GUID 0(default_pg) Rank 3] "


def told(text: str, rank: "int | None" = 3) -> list[LogEvent]:
    reader = TorchLines()
    return [*reader.feed(LogLine(number=1, text=text, rank=rank)), *reader.end()]


def facts(text: str) -> list[Any]:
    return [event.what for event in told(text)]


def timeout(**fields: Any) -> WorkTimeout:
    usual: dict[str, Any] = {"numel_in": None, "numel_out": None, "timeout_ms": 1_800_000, "ran_ms": 1_800_123}
    return WorkTimeout(**(usual | fields))


@pytest.mark.parametrize(
    ("release", "text", "fact"),
    [
        (
            "1.13, 2.0",
            (
                "[E ProcessGroupNCCL.cpp:828] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7,"
                " OpType=_ALLGATHER_BASE, Timeout(ms)=1800000) ran for 1800123 milliseconds before timing out."
            ),
            timeout(seq=7, op="_all_gather_base"),
        ),
        (
            "1.12: with a shape",
            (
                "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, TensorShape=[4, 8],"
                " Timeout(ms)=1800000) ran for 1800123 milliseconds before timing out."
            ),
            None,
        ),
        (
            "1.13 blocking",
            (
                "[Rank 3] Caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, TensorShape=[4, 8],"
                " Timeout(ms)=1800000) ran for 1800123 milliseconds before timing out."
            ),
            timeout(seq=7, op="all_reduce"),
        ),
        (
            "2.1 and later",
            (
                "[rank3]:[E901 05:20:03.011971373 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation"
                " timeout: WorkNCCL(SeqNum=0, OpType=ALLTOALL_BASE, NumelIn=4, NumelOut=0, Timeout(ms)=1800000) ran for"
                " 1800123 milliseconds before timing out."
            ),
            timeout(seq=0, op="all_to_all", numel_in=4, numel_out=0),
        ),
        (
            "2.2-2.5, coalesced",
            (
                "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=COALESCED,"
                " NumelIn=18446744073709551615, NumelOut=18446744073709551615, Timeout(ms)=1800000) ran for 1800123"
                " milliseconds before timing out."
            ),
            timeout(seq=7, op="coalesced"),
        ),
        (
            "cut short",
            "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=BROADCAST, NumelIn=1",
            timeout(seq=7, op="broadcast", numel_in=1, timeout_ms=None, ran_ms=None),
        ),
        (
            "2.1 blocking wait",
            (
                "Work WorkNCCL(SeqNum=7, OpType=_REDUCE_SCATTER_BASE, NumelIn=1, NumelOut=2, Timeout(ms)=5000) timed out in"
                " blocking wait (NCCL_BLOCKING_WAIT=1)."
            ),
            timeout(seq=7, op="_reduce_scatter_base", numel_in=1, numel_out=2, timeout_ms=5000, ran_ms=None),
        ),
        (
            "2.13 blocking wait",
            "Work WorkNCCL(SeqNum=7, OpType=SEND, NumelIn=1, NumelOut=2, Timeout(ms)=5000) timed out in blocking wait.",
            timeout(seq=7, op="send", numel_in=1, numel_out=2, timeout_ms=5000, ran_ms=None),
        ),
    ],
)
def test_timeouts(release: str, text: str, fact: "WorkTimeout | None") -> None:
    assert facts(text) == ([fact] if fact else []), release


@pytest.mark.parametrize(
    ("op_type", "op"),
    [
        ("ALLREDUCE", "all_reduce"), ("_ALLGATHER_BASE", "_all_gather_base"), ("ALLGATHER", "all_gather"),
        ("_REDUCE_SCATTER_BASE", "_reduce_scatter_base"), ("REDUCE_SCATTER", "reduce_scatter"), ("REDUCE", "reduce"),
        ("ALLTOALL_BASE", "all_to_all"), ("ALLTOALL", "all_to_all"), ("BROADCAST", "broadcast"), ("GATHER", "gather"),
        ("SCATTER", "scatter"), ("SEND", "send"), ("RECV", "recv"), ("BARRIER", "barrier"), ("COALESCED", "coalesced"),
        ("SOMETHING_NEW", "something_new"),
    ],
)  # fmt: skip
def test_operations_have_the_recorders_names(op_type: str, op: str) -> None:
    text = f"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType={op_type}, Timeout(ms)=1) ran"
    (fact,) = facts(text)
    assert fact.op == op


@pytest.mark.parametrize(
    ("release", "text", "fact"),
    [
        (
            "2.4",
            (
                "[PG 1 Rank 3] Exception (either an error or timeout) detected by watchdog at work: 8, last enqueued NCCL"
                " work: 9, last completed NCCL work: 7."
            ),
            GroupProgress(last_enqueued=9, last_completed=7, failed=8),
        ),
        (
            "2.5",
            f"{OF_WORLD}Timeout at NCCL work: 8, last enqueued NCCL work: 9, last completed NCCL work: -1.",
            GroupProgress(last_enqueued=9, last_completed=None, failed=8),
        ),
        (
            "2.6-2.13",
            (
                f"{OF_WORLD} failure detected by watchdog at work sequence id: 8 PG status: last enqueued work: 0, last"
                " completed work: 0"
            ),
            GroupProgress(last_enqueued=0, last_completed=0, failed=8),
        ),
        (
            "periodically",
            (
                f"{OF_WORLD}NCCL Work update periodically: last enqueued NCCL work: 5, last started NCCL work: 4, last"
                " completed NCCL work: 3."
            ),
            GroupProgress(last_enqueued=5, last_started=4, last_completed=3),
        ),
    ],
)
def test_counters(release: str, text: str, fact: GroupProgress) -> None:
    assert facts(text) == [fact], release


@pytest.mark.parametrize(
    ("text", "from_rank"),
    [
        ("Received a dump signal from this local rank and will start to dump the debug info. Last", None),
        ("Received a global dump signal from rank 5, and will start to dump the debug info. Last", 5),
        ("Received a dump signal due to a collective timeout from this local rank and we will try", None),
        ("Received a dump signal due to a collective timeout from  rank 0 and we will try our best", 0),
        ("First PG on this rank to signal dumping.", None),
        ("Broadcasting flight recorder dump signal to other processes via TCPStore.", None),
    ],
)
def test_dump_signals(text: str, from_rank: "int | None") -> None:
    assert facts(OF_WORLD + text) == [DumpSignal(from_rank=from_rank)]


def test_a_dump_signal_has_counters_too() -> None:
    text = (
        f"{OF_WORLD}Received a dump signal due to a collective timeout from  rank 9 and we will try our best to dump the"
        " debug info. Last enqueued NCCL work: 4, last completed NCCL work: 4.This is most likely caused by"
    )
    progress = GroupProgress(last_enqueued=4, last_completed=4)
    assert facts(text) == [progress, DumpSignal(from_rank=9)]


@pytest.mark.parametrize(
    ("text", "facts_"),
    [
        ("ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress", [WatchdogStuck(seconds=480)]),
        ("NCCL monitor thread timeout. Basically, this could be due to CUDA", [WatchdogStuck(seconds=None)]),
        ("monitoring thread detects no heartbeat and will finally kill the process!", [WatchdogStuck(seconds=None)]),
        ("Heartbeat monitor timed out! Process will be terminated after dumping", [WatchdogStuck(seconds=None)]),
        ("First PG on this rank that detected no heartbeat of its watchdog.", [WatchdogStuck(seconds=None)]),
        ("Could not acquire GIL within 300 ms on exit, possible GIL induced hang", [GilStuck()]),
        (" remote error detected from rank: 2", [RemoteError(from_rank=2)]),
        ("Observed flight recorder dump signal from another rank via TCPStore.", []),
        ("Finished writing NCCLPG debug info to /tmp/nccl_trace_rank_3", [DumpWritten(path="/tmp/nccl_trace_rank_3", rank=3)]),
        ("Finished writing Flight Recorder debug info to /d/fr", [DumpWritten(path="/d/fr", rank=None)]),
        ("To avoid data inconsistency, we are taking the entire process down.", []),
        ("ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1", []),
    ],
)  # fmt: skip
def test_other_lines(text: str, facts_: list[Any]) -> None:
    assert facts(text) == facts_


@pytest.mark.parametrize(
    ("message", "failure"),
    [
        ("CUDA error: uncorrectable ECC error encountered", Failure.GPU_FAULT),
        ("CUDA error: uncorrectable NVLink error detected during the execution", Failure.GPU_FAULT),
        ("CUDA error: an illegal memory access was encountered", Failure.GPU_ERROR),
        ("CUDA error: unspecified launch failure", Failure.GPU_ERROR),
        ("CUDA error: out of memory", Failure.GPU_MEMORY),
        ("[Rank 3] Work WorkNCCL(SeqNum=1) timed out in blocking wait", Failure.COLLECTIVE_ECHO),
        ("Connection reset by peer", Failure.CONNECTION_ECHO),
        ("Broken pipe", Failure.CONNECTION_ECHO),
    ],
)
@pytest.mark.parametrize(
    "before",
    [
        "[Rank 3] NCCL watchdog thread terminated with exception: ",
        f"{OF_WORLD}Process group watchdog thread terminated with exception: ",
        "Collective WorkNCCL(SeqNum=1, OpType=SEND) raised the following async exception: ",
        "[Rank 3] found async exception when checking for NCCL errors: ",
    ],
)
def test_exceptions_that_end_a_thread(before: str, message: str, failure: Failure) -> None:
    raised = [fact for fact in facts(before + message) if isinstance(fact, Raised)]
    assert [(one.message, one.failure) for one in raised] == [(message, failure)]


def test_a_timeout_that_ends_the_thread_names_the_group() -> None:
    text = (
        f"{OF_WORLD}Process group watchdog thread terminated with exception: [Rank 3] Watchdog caught collective operation"
        " timeout: WorkNCCL(SeqNum=4, OpType=REDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800123"
        " milliseconds before timing out."
    )
    work, raised = facts(text)
    assert work == timeout(seq=4, op="reduce", numel_in=1, numel_out=1)
    assert (raised.exception, raised.failure) == ("c10::DistBackendError", Failure.COLLECTIVE_ECHO)


def test_an_aborted_communicator_names_its_rank_where_nothing_else_does() -> None:
    text = "Timeout Error: NCCL communicator was aborted on rank 1."
    assert [(event.rank, event.what) for event in told(text, rank=None)] == [(1, Aborted())]
    assert [event.rank for event in told(text, rank=5)] == [5]
    assert [event.rank for event in told("NCCL communicator was aborted before", rank=None)] == [None]


@pytest.mark.parametrize(
    ("prefix", "group"),
    [
        ("[PG 0 Rank 0]", LogGroup(name="0", group_rank=0, is_own_count=True)),
        ("[PG 0 (default_pg) Rank 3]", LogGroup(name="0", description="default_pg", group_rank=3, is_own_count=True)),
        ("[PG ID 0 PG GUID 0(default_pg) Rank 3]", LogGroup(name="0", description="default_pg", group_rank=3)),
        ("[PG ID 2 PG GUID 9 Rank 4]", LogGroup(name="9", group_rank=4)),
        ("[PG ID 2 PG GUID 9(mesh_tp) Rank 1]", LogGroup(name="9", description="mesh_tp", group_rank=1)),
        ("[PG ID 2 PG GUID 9(undefined) Rank 1]", LogGroup(name="9", group_rank=1)),
        ("[Rank 3]", None),
    ],
)
def test_every_line_tells_the_group_that_its_prefix_names(prefix: str, group: "LogGroup | None") -> None:
    counters = "Timeout at NCCL work: 1, last enqueued NCCL work: 1, last completed NCCL work: 0."
    for words in (counters, "Process group watchdog thread terminated with exception: x"):
        (event,) = told(f"{prefix} {words}")
        assert event.group == group


OPTIONS = "ProcessGroupNCCL initialization options: "


@pytest.mark.parametrize(
    ("release", "text", "joined"),
    [
        ("2.2", f"[Rank 5] {OPTIONS}NCCL version: 2.19.3, size: 2, global rank: 5, TIMEOUT(ms): 600000", [2]),
        ("2.3", f"[PG 0 Rank 5] {OPTIONS}size: 8, global rank: 5, TIMEOUT(ms): 600000, PG Name: 0", [8, 8]),
        ("2.4", f"[PG 1 Rank 1] {OPTIONS}size: 2, global rank: 5, SPLIT_COLOR: 0, PG Name: 10", [2]),
        ("2.6", f"[PG ID 0 PG GUID 0(default_pg) Rank 5] {OPTIONS}size: 8, global rank: 5, PG Name: 0", [8, 8]),
        ("2.6", f"[PG ID 1 PG GUID 3(tp) Rank 1] {OPTIONS}size: 2, global rank: 5, PG Name: 3", [2]),
    ],
)
def test_a_group_is_joined(release: str, text: str, joined: list[int]) -> None:
    """The default group is the world, too."""
    events = told(f"I0527 15:16:51.665375 58626 ProcessGroupNCCL.cpp:869] {text}", rank=None)
    assert [event.what.size for event in events] == joined, release
    assert [type(event.what) for event in events] == [GroupJoined, WorldSize][: len(joined)]
    assert {event.rank for event in events} == {5}
