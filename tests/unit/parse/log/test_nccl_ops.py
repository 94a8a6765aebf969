"""Operations counted per communicator of each process."""

import pytest

from ncclprobe.model.collectives import Signature
from ncclprobe.model.log import OpTrace
from ncclprobe.parse.log import nccl_ops
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.nccl_ops import NEEDLES, RECOGNIZER, NcclOps

INFO = "node01:4120:4388 [0] NCCL INFO "
INIT = "ncclCommInitRank comm 0x55aa rank 1 nranks 4 cudaDev 3 nvmlDev 3 busId 18000 commId 0x9 - Init "


def op(
    name: str = "AllReduce", count: int = 512, root: int = 0, dtype: int = 7, comm: str = "0x55aa", n: int = 0
) -> str:
    return (
        f"{INFO}{name}: opCount {n:x} sendbuff 0x7ffa recvbuff (nil) count {count} datatype {dtype} op 0 root {root}"
        f" comm {comm} [nranks=4] stream 0x55a1"
    )


def traces(*texts: str, recognizer: NcclOps | None = None) -> list[OpTrace]:
    recognizer = recognizer or RECOGNIZER()
    for number, text in enumerate(texts, 1):
        assert list(recognizer.feed(LogLine(number=number, text=text))) == []
    return [trace for trace in recognizer.end() if isinstance(trace, OpTrace)]


def calls(trace: OpTrace) -> list[str]:
    return [str(trace.signatures[number]) for number in trace.signature_of]


def test_the_operations_of_a_communicator_in_order() -> None:
    (trace,) = traces(
        f"{INFO}{INIT}START",
        f"{INFO}{INIT}COMPLETE",
        op(n=0x26A),
        op("AllGather", 480, dtype=0, n=0x26B),
        op(n=0x26C),
    )
    assert (trace.host, trace.pid, trace.comm, trace.comm_id) == ("node01", 4120, "0x55aa", "0x9")
    assert (trace.rank, trace.size, trace.cuda_device) == (1, 4, 3)
    assert calls(trace) == ["all_reduce(Float[512])", "_all_gather_base(Char[480])", "all_reduce(Float[512])"]
    assert (list(trace.op_count), list(trace.line)) == ([0x26A, 0x26B, 0x26C], [3, 4, 5])
    assert (trace.left_out, trace.is_call, len(trace)) == (0, False, 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Broadcast", "broadcast"),
        ("Reduce", "reduce"),
        ("ReduceScatter", "_reduce_scatter_base"),
        ("AlltoAll", "all_to_all"),
        ("Gather", "gather"),
        ("Scatter", "scatter"),
        ("AllGatherV", "all_gather"),
        ("AllReduceWithBias", "AllReduceWithBias"),
    ],
)
def test_names_are_the_recorders(name: str, expected: str) -> None:
    (trace,) = traces(op(name, 8, dtype=9))
    assert trace.signatures == (Signature(expected, ((8,),), ((8,),), ("BFloat16",), ("BFloat16",)),)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (0, "Char"),
        (1, "Byte"),
        (2, "Int"),
        (4, "Long"),
        (6, "Half"),
        (8, "Double"),
        (10, "Float8_e4m3fn"),
        (42, "type 42"),
    ],
)
def test_types_are_the_recorders(dtype: int, expected: str) -> None:
    (trace,) = traces(op(dtype=dtype))
    assert trace.signatures[0].input_dtypes == (expected,)


def test_sends_and_receives_have_their_peer() -> None:
    (trace,) = traces(op("Send", root=2), op("Recv", root=3), op("Send", root=0))
    assert calls(trace) == ["send(Float[512])", "recv(Float[512])", "send(Float[512])"]
    assert list(trace.root) == [2, 3, 0]


def test_before_its_init_line_a_communicator_has_a_size_but_no_rank() -> None:
    (trace,) = traces(op())
    assert (trace.rank, trace.size, trace.comm_id) == (None, 4, None)


def test_a_pointer_used_again_is_another_communicator() -> None:
    again = INIT.replace("commId 0x9", "commId 0xa")
    first, second = traces(
        *(f"{INFO}{INIT}{step}" for step in ("START", "COMPLETE")),
        op(count=1),
        f"{INFO}comm 0x55aa rank 1 nranks 4 cudaDev 3 busId 18000 - Destroy COMPLETE",
        *(f"{INFO}{again}{step}" for step in ("START", "COMPLETE")),
        op(count=2),
    )
    assert (first.comm_id, calls(first)) == ("0x9", ["all_reduce(Float[1])"])
    assert (second.comm_id, calls(second)) == ("0xa", ["all_reduce(Float[2])"])


def test_before_2_18_there_is_no_start_line() -> None:
    old = "comm 0x55aa rank 1 nranks 4 cudaDev 3 busId 18000 - Init COMPLETE"
    assert [len(trace) for trace in traces(f"{INFO}{old}", op(), f"{INFO}{old}", op(), op())] == [1, 2]


def test_processes_and_communicators_are_kept_apart() -> None:
    other = op().replace("node01:4120", "node01:4121")
    found = traces(op(), other, op(comm="0x66"), op())
    assert [(trace.pid, trace.comm, len(trace)) for trace in found] == [
        (4120, "0x55aa", 2),
        (4121, "0x55aa", 1),
        (4120, "0x66", 1),
    ]


def test_ranks_that_write_into_one_another() -> None:
    first, second = op(), op().replace("node01:4120", "node02:77")
    found = traces(first, second, first[:-4] + second, f"step 3 {first}")
    assert [(trace.host, trace.pid, len(trace)) for trace in found] == [("node01", 4120, 3), ("node02", 77, 2)]


def test_a_fork_that_prints_the_rank() -> None:
    (trace,) = traces(f"{INFO}[2] {op().removeprefix(INFO)}")
    assert calls(trace) == ["all_reduce(Float[512])"]


CALL = "node01:4120:4388 NCCL CALL ncclAllReduce(7f59361d64d0,7f59361d64d0,512,7,0,0,0x55aa,0x5590)"


def test_calls_of_the_trace_level() -> None:
    (trace,) = traces(CALL, CALL)
    assert (calls(trace), trace.is_call, list(trace.op_count)) == (["all_reduce(Float[512])"] * 2, True, [0, 0])


def test_calls_that_are_listed_as_operations_too_are_not_counted_twice() -> None:
    (trace,) = traces(CALL, op(n=5), CALL, op(n=6))
    assert (len(trace), trace.is_call) == (2, False)


@pytest.mark.parametrize(
    "text", ["", ": opCount ", "NCCL CALL ncclGroupStart()", f"{INFO}AllReduce: opCount zz sendbuff"]
)
def test_lines_that_are_none(text: str) -> None:
    assert traces(text) == []


def test_of_a_long_log_the_last_rows_are_kept_and_the_end_of_those_who_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_ops, "MAX_ROWS", 2_000)
    monkeypatch.setattr(nccl_ops, "_ROWS_PER_MARK", 100)
    recognizer = RECOGNIZER()
    stopped = [op(comm="0x66", n=number) for number in range(90)]
    stopper, runner = sorted(
        traces(*stopped, *[op()] * 5_000, recognizer=recognizer), key=lambda trace: trace.comm, reverse=True
    )
    assert (len(stopper), stopper.left_out, stopper.op_count[-1]) == (
        nccl_ops.KEPT_OF_EACH,
        90 - nccl_ops.KEPT_OF_EACH,
        89,
    )
    assert 1_800 <= len(runner) <= 2_200
    assert len(runner) + runner.left_out == 5_000
    assert runner.line[-1] == 5_090
    (problem,) = recognizer.problems
    assert problem.startswith("it lists 5090 NCCL operations; the first ")


def test_needles_find_what_is_read() -> None:
    for text in (op(), CALL, f"{INFO}{INIT}START"):
        assert any(needle in text for needle in NEEDLES)
