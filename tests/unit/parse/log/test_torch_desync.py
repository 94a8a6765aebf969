"""Torch's reports of several lines."""

# ruff: noqa: E501  (lines of logs stay whole)

from typing import Any

import pytest

from ncclprobe.model.frames import Frame
from ncclprobe.model.log import BarrierMissing, DesyncReport, Failure, Fingerprint, LogEvent, Raised
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.torch_desync import TorchReports

OPTIONS = (
    "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default), requires_grad=false"
    " (default), pinned_memory=false (default), memory_format=(nullopt)))"
)


def told(*texts: str, rank: "int | None" = None) -> list[LogEvent]:
    reader = TorchReports()
    lines = [
        LogLine(number=number, text=text, rank=rank if number == 1 else None) for number, text in enumerate(texts, 1)
    ]
    return [event for line in lines for event in reader.feed(line)] + [
        event for event in reader.end() if isinstance(event, LogEvent)
    ]


def report(*parts: str, head: str = "[rank0]:[E901 05:20:03.01 x.cpp:1] Rank 0") -> list[LogEvent]:
    return told(head, "\t - [0] Timeout at collective: ALLREDUCE, #7", *parts, "step 12", rank=0)


def test_ranks_that_never_joined() -> None:
    (event,) = report(
        "\t - To our best knowledge, ranks [1, 2] are the lagging ranks that caused this timeout. They never joined any"
        " collectives"
    )
    assert event.what == DesyncReport(op="all_reduce", seq=7, reporter=0, absent=(1, 2), members=(0, 1, 2))
    assert (event.rank, event.line) == (0, 2)


def test_absent_and_unfinished_ranks() -> None:
    (event,) = report(
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
        "\t   - [1] joined but didn't finish collective #7 (count from 1)",
        "\t     [2, 5] finished collective #6, but didn't join collective #7 (count from 1)",
        "\t - Snapshot of ranks' latest states:",
        "\t   #7 started ranks:",
        "\t     [0, 3] started ALLREDUCE",
        "\t   #6 finished ranks:",
        "\t     [2] finished ALLREDUCE",
    )
    assert event.what == DesyncReport(
        op="all_reduce", seq=7, reporter=0, absent=(2, 5), unfinished=(1,), members=(0, 1, 2, 3, 5)
    )


def test_a_report_that_the_log_ends_in() -> None:
    (event,) = told("\t - [4] Timeout at collective: BROADCAST, #0")
    assert event.what == DesyncReport(op="broadcast", seq=0, reporter=4, absent=(), members=(4,))
    assert event.rank is None


def test_two_reports_in_a_row() -> None:
    events = told(
        "[Rank 0]", "\t - [0] Timeout at collective: ALLREDUCE, #7", "[Rank 3]", "\t - [3] Timeout at collective: REDUCE, #8"
    )  # fmt: skip
    assert [(event.rank, event.what.seq) for event in events] == [(0, 7), (3, 8)]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("release", "first", "fact"),
    [
        (
            "2.1-2.13",
            f"SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[4, 8], TensorDtypes=Float, {OPTIONS}",
            Fingerprint(rank=2, seq=0, op="all_reduce", shape=(4, 8), dtype="Float"),
        ),
        ("2.1-2.13, no tensor", "SequenceNumber=12OpType=BARRIER)", Fingerprint(rank=2, seq=12, op="barrier")),
        (
            "1.13, 2.0",
            f"OpType=ALLREDUCE, TensorShape=[], TensorDtypes=Long, {OPTIONS}",
            Fingerprint(rank=2, seq=None, op="all_reduce", shape=(), dtype="Long"),
        ),
    ],
)
def test_fingerprints(release: str, first: str, fact: Any) -> None:
    text = (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 2 is running collective:"
        f" CollectiveFingerPrint({first}, but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=0"
        "OpType=GATHER).Collectives differ in the following aspects: \tOp type: ALLREDUCEvs GATHER"
    )
    (event,) = told(text)
    assert (event.what, event.rank) == (fact, 2), release


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("[Rank 0]: Rank 1 failed to pass monitoredBarrier in 12000 ms", (1,)),
        ("[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 12000 ms", (1,)),
        ("[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 3000 ms", (1, 2)),
    ],
)
def test_who_missed_the_monitored_barrier(text: str, ranks: tuple[int, ...]) -> None:
    (event,) = told("RuntimeError: " + text)
    assert (event.what, event.rank) == (BarrierMissing(ranks=ranks), 0)


def test_ranks_that_passed_the_monitored_barrier_blame_nobody() -> None:
    assert not told(
        "Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please"
        " check rank 0 logs for faulty rank."
    )


def test_the_stack_of_the_failed_collective() -> None:
    (event,) = told(
        "[rank5]:[E901 05:20:03.01 x.cpp:1] Stack trace of the failed collective: ",
        "#0 all_reduce from /opt/torch/distributed/distributed_c10d.py:2501",
        "#1 step from /app/train.py:88",
        "",
        rank=5,
    )
    frames = (
        Frame("all_reduce", "/opt/torch/distributed/distributed_c10d.py", 2501),
        Frame("step", "/app/train.py", 88),
    )
    assert isinstance(event.what, Raised)
    assert (event.rank, event.what.failure, event.what.stack) == (5, Failure.COLLECTIVE_ECHO, frames)


def test_a_stack_that_is_not_there() -> None:
    assert not told(
        "Stack trace of the failed collective not found, potentially because FlightRecorder is disabled.",
        "#0 a from b:1",
    )


def test_a_report_of_a_smaller_group_keeps_its_numbers() -> None:
    """Only the speaker's is known in both: rank 4 of the job, 0 of the group."""
    (event,) = told(
        "\t - [0] Timeout at collective: ALLREDUCE, #31",
        "\t   - [2] finished collective #30, but didn't join collective #31 (count from 1)",
        "\t     [0, 1, 3] started ALLREDUCE",
        "an end",
        rank=4,
    )
    assert event.rank == 4
    assert event.what == DesyncReport(op="all_reduce", seq=31, reporter=0, absent=(2,), members=(0, 1, 2, 3))
