"""For any bytes: sound events, operations and reports, or a word of what is wrong, soon."""

import json
import time
from dataclasses import fields, is_dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncclprobe.analyze.communicators import communicators, ranks_by_process
from ncclprobe.model.errors import ParseError
from ncclprobe.model.log import LogEvent, OpTrace
from ncclprobe.parse import ras
from ncclprobe.parse.log import nccl_lines, nccl_ops
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.mended_json import documents
from tests.mutations import mutated
from tests.ras_reports import HASH, OPS, as_json, mismatch, missing, rank, text, where

INFO = "node01:4120:4388 [0] NCCL INFO "
WARN = "[2026-11-02 21:30:11] node01:4120:4388 [0] transport/net_ib.cc:1888 NCCL WARN "
PARENT = "parent 0x55aa splitCount 1"
BUFFERS = "sendbuff 0x7f recvbuff 0x7f"
GIDS = "opcode=X(0) vendor_err=129 localGid fe80::e2:1 remoteGidsfe80::c3:1 hca mlx5_1"
LOG = "\n".join(
    [
        "NCCL version 2.21.5+cuda12.4",
        f"{INFO}cudaDriverVersion 12040",
        f"{INFO}NCCL_IB_TIMEOUT set by environment to 22.",
        f"{INFO}comm 0x55aa rank 0 nranks 2 cudaDev 0 busId 18000 commId 0x9 - Init START",
        f"{INFO}comm 0x55aa rank 0 nranks 2 cudaDev 0 busId 18000 commId 0x9 - Init COMPLETE",
        f"{INFO}ncclCommSplit comm 0x66 rank 0 nranks 2 cudaDev 0 busId 18000 {PARENT} color 0 key 0- Init START",
        *(f"{INFO}AllReduce: opCount {n:x} {BUFFERS} count 512 datatype 7 op 0 root 0 comm 0x55aa" for n in range(6)),
        "node01:4120:4388 NCCL CALL ncclAllReduce(7f,7f,512,7,0,0,0x66,0x5590)",
        f"{WARN}NET/IB: Got completion from peer 10.0.2.13<37001> with status=IBV_WC_RETRY_EXC_ERR(12) {GIDS}",
        f"{INFO}transport/net.cc:1298 -> 6",
        f"{WARN}NET/IB : mlx5_0:1 Got non-fatal async event: port error(10)",
        f"{WARN}Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 9b000",
        f"{WARN}Cuda failure 2 'out of memory'",
        f"{INFO}[Service thread] Connection closed by localRank 6",
        f"{INFO}comm 0x55aa rank 0 nranks 2 cudaDev 0 busId 18000 - Abort COMPLETE",
    ]
).encode()
FEW = mismatch(
    "30 ranks have launched up to operation 640",
    "2 ranks have launched up to operation 641",
    f"Rank 12 -- {where(12)}",
    f"Rank 13 -- {where(13)}",
)
LOST = f"#0-0 ({HASH}) INCOMPLETE\n  Missing communicator data from 1 rank\n  Rank 5 -- {where(5)}\n"
DEAD = "DEAD\n  1 job process is considered dead\n  Process 9005 on node 10.0.15.11 managing GPU 5\n"
REPORTS = [
    f"# date: 2026-10-01 09:10:00\n{text(FEW, LOST, DEAD, errors='INCOMPLETE,MISMATCH')}".encode(),
    as_json([rank(0, {"AllReduce": 5}), rank(1, {}, async_error=6)], [missing(2)]).encode(),
    as_json([rank(0, {"AllReduce": 5})], [missing(1), missing(2, dead=True)], "2.28.9").encode(),
]
SECONDS = 5.0


def check_text(value: object) -> None:
    """All text below is fit to show."""
    if isinstance(value, str):
        value.encode()
        assert not any(character < " " or "\x7f" <= character < "\xa0" for character in value), value
    elif isinstance(value, dict):
        check_text([*value, *value.values()])
    elif isinstance(value, (tuple, list)):
        for part in value:
            check_text(part)
    elif is_dataclass(value):
        for field in fields(value):
            check_text(getattr(value, field.name))


def check_log(data: bytes) -> int:
    """How many events and traces it has."""
    started = time.process_time()
    recognizers = (nccl_lines.RECOGNIZER(), nccl_ops.RECOGNIZER())
    found: list[LogEvent | OpTrace] = []
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        for recognizer in recognizers:
            found += recognizer.feed(LogLine(number=number, text=line))
    for recognizer in recognizers:
        found += recognizer.end()
    check_text(found)
    events = [one for one in found if isinstance(one, LogEvent)]
    for one in communicators(events):
        check_text(one)
        assert one.members
    assert all(number >= 0 for number in ranks_by_process(events).values())
    for trace in (one for one in found if isinstance(one, OpTrace)):
        assert len(trace) == len(trace.root) == len(trace.op_count) == len(trace.line) > 0
        assert list(trace.line) == sorted(trace.line)
        assert set(trace.signature_of) == set(range(len(trace.signatures)))
    assert time.process_time() - started < SECONDS
    return len(found)


def check_report(data: bytes) -> int:
    """How many reports it has."""
    started = time.process_time()
    try:
        parsed = ras.parse(data)
    except ParseError as error:
        check_text([str(error), error.advice])
        return 0
    finally:
        assert time.process_time() - started < SECONDS
    check_text([parsed.records, parsed.problems])
    for report in parsed.records:
        for one in report.communicators:
            assert [member.rank for member in one.ranks] == sorted(member.rank for member in one.ranks)
            assert all(count >= 0 for member in one.ranks for count in member.counts.values())
            assert all(common.others > 0 for common in one.commons)
    return len(parsed.records)


def test_the_seeds_are_read() -> None:
    assert check_log(LOG) == 15
    for report in REPORTS:
        assert ras.is_ras(report)
        assert check_report(report) == 1
        assert ras.parse(report).problems == ()


@settings(max_examples=300, deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_damaged_logs(chance: Random) -> None:
    check_log(mutated(LOG, chance))


@pytest.mark.parametrize("seed", REPORTS, ids=["text", "json", "without-a-comma"])
@settings(max_examples=200, deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_damaged_reports(seed: bytes, chance: Random) -> None:
    damaged = mutated(seed, chance)
    ras.is_ras(damaged)
    check_report(damaged)


@pytest.mark.parametrize("seed", REPORTS, ids=["text", "json", "without-a-comma"])
def test_every_cut_of_a_report(seed: bytes) -> None:
    for end in range(0, len(seed), 7):
        check_report(seed[:end])


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    check_log(INFO.encode() + data)
    check_report(data)
    check_report(b'{"communicators": ' + data)


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "node01:1:",
        "a.",
        INFO,
        "comm 0x55aa rank 0 ",
        "opCount ",
        "{",
        '{"a":',
        "[",
        '"',
        "1,",
        " ",
        "  Rank 1 ",
        "NET/IB ",
    ],
)
def test_no_line_takes_more_than_time_in_its_length(piece: str) -> None:
    line = (piece * 200_000)[:16_384]
    needles = f"{line} NCCL WARN : opCount - Init NCCL CALL nccl.cc:"
    check_log("\n".join([needles] * 8).encode())
    check_log(f"{WARN}{needles}\n{INFO}{needles}\n".encode())
    check_report(f'{{"nccl_version": {line * 20}'.encode())
    check_report(f"{text()}\n{line * 20}".encode())


WHOLES = st.integers(0, 1 << 40)


@settings(max_examples=200, deadline=None)
@given(
    counts=st.lists(st.dictionaries(st.sampled_from(OPS), WHOLES), min_size=1, max_size=6),
    absent=st.integers(0, 3),
    version=st.sampled_from(["2.28.7", "2.28.9", "2.30.7"]),
)
def test_what_the_service_counted_is_what_is_read(counts: list[dict[str, int]], absent: int, version: str) -> None:
    members = [rank(number, one) for number, one in enumerate(counts)]
    lost = [missing(len(counts) + number) for number in range(absent)]
    (report,) = ras.parse(as_json(members, lost, version).encode()).records
    (found,) = report.communicators
    assert [one.counts for one in found.ranks] == [{op: one.get(op, 0) for op in OPS} for one in counts] + [{}] * absent
    assert len(report.silent) == absent


SCALARS = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=4), parts, max_size=3)
)


@settings(max_examples=300, deadline=None)
@given(document=st.dictionaries(st.text(max_size=4), VALUES, max_size=4), chance=st.randoms(use_true_random=False))
def test_commas_lost_or_doubled_change_nothing(document: dict[str, object], chance: Random) -> None:
    pieces = json.dumps(document, indent=1).split(",\n")
    broken = "".join(piece + chance.choice([",\n", "\n", ",,\n"]) for piece in pieces[:-1]) + pieces[-1]
    (mended,) = documents(f"x {broken} y")
    assert mended.value == document
    assert not mended.is_cut
