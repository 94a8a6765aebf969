"""RAS reports: text of 2.24 to 2.30, JSON with and without its comma, whole and cut off."""

import json

import pytest

from ncclprobe.model.errors import ParseError
from ncclprobe.model.ras import RasCommunicator, RasCount, RasRank, RasReport
from ncclprobe.parse.ras import is_ras, parse
from tests.ras_reports import HASH, as_json, mismatch, missing, rank, text, where

WHEN_NS = 1_790_845_800_000_000_000  # 2026-10-01 09:10:00


def report(data: str) -> RasReport:
    parsed = parse(data.encode())
    assert parsed.problems == ()
    assert is_ras(data.encode())
    (record,) = parsed.records
    return record


def communicator(data: str) -> RasCommunicator:
    (found,) = report(data).communicators
    return found


# Text


def test_all_is_well() -> None:
    found = report(text())
    assert found.nccl_version == "2.26.2"
    assert found.communicators == (RasCommunicator(id="", size=32, ranks=(), status="RUNNING", errors="OK"),)
    assert (found.when_ns, found.silent, found.dead, found.timeouts) == (None, (), (), 0)


def test_the_many_and_the_few_that_are_listed() -> None:
    lines = ("30 ranks have launched up to operation 640", "2 ranks have launched up to operation 641")
    listed = (f"Rank 12 -- {where(12)}", f"Rank 13 -- {where(13)}")
    found = communicator(text(warnings=mismatch(*lines, *listed), errors="MISMATCH"))
    assert (found.id, found.size, found.errors) == (f"0x{HASH}", 32, "MISMATCH")
    assert found.commons == (RasCount(op="AllReduce", count=640, others=30),)
    assert [(one.rank, one.counts) for one in found.ranks] == [(12, {"AllReduce": 641}), (13, {"AllReduce": 641})]
    assert found.ranks[1] == RasRank(
        rank=13, host="10.0.15.12", pid=9_013, cuda_device=5, nvml_device=5, counts={"AllReduce": 641}
    )


def test_one_rank_alone() -> None:
    lines = ("31 ranks have launched up to operation 7", f"Rank 0 has launched up to operation 6 -- {where(0)}")
    found = communicator(text(mismatch(*lines), errors="MISMATCH"))
    assert found.commons == (RasCount(op="AllReduce", count=7, others=31),)
    assert [(one.rank, one.counts) for one in found.ranks] == [(0, {"AllReduce": 6})]


def test_nothing_launched() -> None:
    lines = ("20 ranks have not launched any operations", "11 ranks have launched up to operation 1")
    alone = f"Rank 4 has not launched any operations -- {where(4)}"
    found = communicator(text(mismatch(*lines, alone), errors="MISMATCH"))
    assert found.commons == (
        RasCount(op="AllReduce", count=0, others=20),
        RasCount(op="AllReduce", count=1, others=11),
    )
    assert found.ranks[0].counts == {"AllReduce": 0}


def test_several_operations_of_one_rank() -> None:
    first = mismatch("31 ranks have launched up to operation 7", f"Rank 3 has launched up to operation 6 -- {where(3)}")
    second = mismatch(
        "31 ranks have launched up to operation 9",
        f"Rank 3 has launched up to operation 10 -- {where(3)}",
        op="AllGather ",
    )
    found = communicator(text(first, second.partition("\n")[2], errors="MISMATCH"))
    assert [(one.rank, one.counts) for one in found.ranks] == [(3, {"AllReduce": 6, "AllGather": 10})]
    assert {(one.op, one.count) for one in found.commons} == {("AllReduce", 7), ("AllGather", 9)}


def test_before_2_26_operations_are_counted_together() -> None:
    lines = ("31 ranks have launched up to operation 7", f"Rank 0 has launched up to operation 6 -- {where(0)}")
    found = communicator(text(mismatch(*lines, op=""), version="2.24.3", errors="MISMATCH"))
    assert found.commons == (RasCount(op="collective", count=7, others=31),)


def test_different_status() -> None:
    block = "\n".join(
        [
            f"#0-0 ({HASH}) MISMATCH",
            "  Communicator ranks have different status",
            "  29 ranks have status RUNNING",
            "  2 ranks have status ABORT",
            f"  Rank 1 -- {where(1)}",
            f"  Rank 2 -- {where(2)}",
            f"  Rank 7 has status NOCOMM -- {where(7)}",
            "",
        ]
    )
    found = communicator(text(block, status="ABORT", errors="MISMATCH"))
    assert [(one.rank, one.state) for one in found.ranks] == [(1, "abort"), (2, "abort"), (7, "missing")]
    assert (found.status, found.commons) == ("ABORT", ())


def test_processes_without_an_answer_and_dead_ones() -> None:
    lost = "  Missing communicator data from 1 job process\n  Process 9005 on node 10.0.15.11 managing GPU 5\n"
    dead = (
        "  1 job process is considered dead (unreachable via the RAS network)\n"
        "  Process 9006 on node 10.0.15.11 managing GPUs 6,7\n"
    )
    ranks = f"  Missing communicator data from 2 ranks\n  Rank 5 -- {where(5)}\n  Rank 6 -- {where(6)}\n"
    blocks = (f"INCOMPLETE\n{lost}", f"DEAD\n{dead}", f"#0-0 ({HASH}) INCOMPLETE\n{ranks}")
    timeout = "TIMEOUT\n  Encountered 2 communication timeouts while gathering communicator data\n"
    found = report(text(*blocks, errors="INCOMPLETE", warnings=timeout))
    assert (found.silent, found.dead, found.timeouts) == ((("10.0.15.11", 9005),), (("10.0.15.11", 9006),), 2)
    (comm,) = found.communicators
    assert [(one.rank, one.state) for one in comm.ranks] == [(5, "unresponsive"), (6, "dead")]


def test_the_missing_ranks_of_2_24() -> None:
    block = f"#0-0 ({HASH}) INCOMPLETE\n  Missing communicator data from 2 ranks\n  The missing ranks: 21,22\n"
    found = communicator(text(block, version="2.24.3", errors="INCOMPLETE"))
    assert [(one.rank, one.state, one.host) for one in found.ranks] == [
        (21, "unresponsive", None),
        (22, "unresponsive", None),
    ]


def test_errors_of_ranks() -> None:
    block = "\n".join(
        [
            f"#0-0 ({HASH}) ERROR",
            "  Asynchronous errors on 3 ranks",
            "  2 ranks reported Remote process error",
            f"  Rank 1 -- {where(1)}",
            f"  Rank 2 -- {where(2)}",
            f"  Rank 3 reported Unhandled CUDA error -- {where(3)}",
            "",
        ]
    )
    found = communicator(text(block, errors="ERROR"))
    assert [(one.rank, one.error) for one in found.ranks] == [
        (1, "Asynchronous error: Remote process error"),
        (2, "Asynchronous error: Remote process error"),
        (3, "Asynchronous error: Unhandled CUDA error"),
    ]


def test_another_number_for_nvml_and_a_process_nobody_knows() -> None:
    lines = (
        "30 ranks have launched up to operation 7",
        "2 ranks have launched up to operation 6",
        "Rank 0 -- GPU 0 (NVML 3) managed by process 9000 on node fd00::1",
        "Rank 1 -- [process information not found]",
    )
    first, second = communicator(text(mismatch(*lines), errors="MISMATCH")).ranks
    assert (first.cuda_device, first.nvml_device, first.host) == (0, 3, "fd00::1")
    assert (second.rank, second.host, second.counts) == (1, None, {"AllReduce": 6})


@pytest.mark.parametrize(
    "head",
    [
        "# date: 2026-10-01 09:10:00\n",
        "$ date; ncclras -v\nThu Oct  1 09:10:00 UTC 2026\n",
        "[root@node1 ~]# # 2026-10-01T09:10:00\nOK\n",
    ],
)
def test_what_a_person_wrote_above(head: str) -> None:
    assert report(head + text()).when_ns == WHEN_NS


def test_several_reports_in_one_file() -> None:
    file = f"# 2026-10-01 09:10:00\n{text()}\n# 2026-10-01 09:10:30\n{text(errors='MISMATCH')}"
    first, second = parse(file.encode()).records
    assert (first.when_ns, second.when_ns) == (WHEN_NS, WHEN_NS + 30 * 10**9)
    assert second.communicators[0].errors == "MISMATCH"


def test_no_communicators_yet() -> None:
    none = text().replace("Group     Comms", "No communicator data collected!").split("    #  in")[0]
    assert parse(none.encode()).records[0].communicators == ()


def test_a_report_that_ends_early_says_so() -> None:
    parsed = parse(text().partition("Errors\n=")[0].encode())
    assert parsed.records[0].communicators[0].size == 32
    assert parsed.problems == ("the report is cut off before its section of warnings",)


# JSON

COUNTS = {"AllReduce": 371_104, "AllGather": 41_266}


def test_json_has_all_members_in_order() -> None:
    found = report(as_json([rank(1, COUNTS), rank(0, COUNTS)]))
    assert (found.nccl_version, found.when_ns, found.timeouts) == ("2.29.1", 1_785_929_081_000_000_000, 1)
    (comm,) = found.communicators
    assert (comm.id, comm.size, comm.status, comm.errors) == (f"0x{HASH}", 2, "RUNNING", "OK")
    assert [one.rank for one in comm.ranks] == [0, 1]
    assert comm.ranks[1] == RasRank(
        rank=1,
        host="10.0.15.11",
        pid=9_001,
        cuda_device=1,
        nvml_device=1,
        counts={"Broadcast": 0, "Reduce": 0, "ReduceScatter": 0, **COUNTS},
        state="running",
    )


def test_json_with_different_counts() -> None:
    assert communicator(as_json([rank(0, COUNTS), rank(1, {**COUNTS, "AllGather": 1})])).errors == "MISMATCH"


@pytest.mark.parametrize(
    ("status", "state", "error"),
    [
        ({"init_state": 7}, "init", None),
        ({"init_state": 2}, "init", "Initialization error: System error"),
        ({"abort_flag": True, "destroy_flag": True}, "abort", None),
        ({"destroy_flag": True}, "finalize", None),
        ({"finalize_called": True}, "finalize", None),
        ({"async_error": 6}, "running", "Asynchronous error: Remote process error"),
        ({"async_error": 99}, "running", "Asynchronous error: Unexpected error"),
    ],
)
def test_states_of_json(status: dict[str, object], state: str, error: str | None) -> None:
    found = communicator(as_json([rank(0, COUNTS), rank(1, COUNTS, **status)]))
    assert (found.ranks[1].state, found.ranks[1].error) == (state, error)
    assert ("ERROR" in found.errors) == (error is not None)


@pytest.mark.parametrize("version", ["2.28.7", "2.28.9", "2.30.7"])
def test_missing_ranks_with_and_without_their_comma(version: str) -> None:
    absent = [missing(1), missing(2, dead=True), missing(3, unresponsive=False)]
    data = as_json([rank(0, COUNTS)], absent, version)
    if version == "2.28.9":
        with pytest.raises(ValueError, match="delimiter"):
            json.loads(data)
    found = report(data)
    (comm,) = found.communicators
    assert [one.state for one in comm.ranks] == ["running", "unresponsive", "dead", "missing"]
    assert (found.silent, found.dead) == ((("10.0.15.11", 9001),), (("10.0.15.11", 9002),))
    assert (comm.status, comm.errors) == ("RUNNING", "INCOMPLETE,MISMATCH")
    assert comm.ranks[2].nvml_device == 2


def test_a_banner_before_the_json_and_commas_too_many() -> None:
    banner = "RCCL version 2.28.9 compiled with ROCm 7.0\nHIP runtime version 7, driver version 7\n\n"
    data = banner + as_json([rank(0, COUNTS)]).replace('"missing_ranks": []', '"missing_ranks": [],')
    assert len(communicator(data).ranks) == 1


def test_two_documents() -> None:
    file = "look 1\n" + as_json([rank(0, COUNTS)]) + "look 2\n" + as_json([rank(0, {})])
    assert [one.communicators[0].ranks[0].counts["AllReduce"] for one in parse(file.encode()).records] == [371_104, 0]


def test_json_that_is_cut_off_keeps_what_is_there() -> None:
    data = as_json([rank(number, COUNTS) for number in range(8)])
    parsed = parse(data[: data.index('"rank": 5') + 20].encode())
    assert [one.rank for one in parsed.records[0].communicators[0].ranks] == [0, 1, 2, 3, 4, 5]
    assert parsed.problems == ("the report is cut off: communicators or ranks may be missing",)


def test_an_unknown_host_and_damaged_members() -> None:
    odd = {**rank(1, COUNTS), "host": "unknown", "pid": -1}
    data = as_json([rank(0, COUNTS), odd, {**rank(2, COUNTS), "rank": "two"}])
    parsed = parse(data.encode())
    assert [(one.rank, one.host, one.pid) for one in parsed.records[0].communicators[0].ranks][1] == (1, None, None)
    assert "1 of 3 ranks are damaged" in parsed.problems[0]


# What is none


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"{}",
        b'{"communicators": 5}',
        b"NCCL version 2.21.5+cuda12.4\nnode1:1:1 [0] NCCL INFO x",
        b"\0\1",
    ],
)
def test_other_files(data: bytes) -> None:
    assert not is_ras(data)
    if b"communicators" not in data:
        with pytest.raises(ParseError):
            parse(data)


def test_a_log_that_quotes_a_report_is_a_log() -> None:
    assert not is_ras(b"step 1\n" * 1_000 + text().encode())
