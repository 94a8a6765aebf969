"""For any bytes the log parser gives sound records or says what is wrong, soon, and in the lines' own order."""

# ruff: noqa: E501  (lines of logs stay whole)

import json
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ncclprobe.model.log import (
    DumpSignal,
    GroupProgress,
    LogEvent,
    OpTrace,
    Speaker,
    StoreUnreachable,
    StoreWait,
    WorkTimeout,
)
from ncclprobe.parse.log import parse as logs
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.parsed import Parsed
from tests.mutations import mutated
from tests.property.test_parse import check

HEAD = "[rank{rank}]:[E901 05:20:03.01{rank}971373 ProcessGroupNCCL.cpp:632] "
TELLING = [
    HEAD + "[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=COALESCED, NumelIn=18446744073709551615, NumelOut=4, Timeout(ms)=1800000) ran for 1800123 milliseconds before timing out.",
    HEAD + "[PG ID 2 PG GUID 9(mesh_tp) Rank 1]  failure detected by watchdog at work sequence id: 7 PG status: last enqueued work: 9, last completed work: -1",
    HEAD + "[PG 0 (default_pg) Rank {rank}] Received a dump signal due to a collective timeout from  rank 2 and we will try our best to dump the debug info. Last enqueued NCCL work: 9, last completed NCCL work: 6.This is",
    HEAD + "[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered",
    HEAD + "[c10d] sendBytes failed on SocketImpl(fd=97, addr=[n2]:5, remote=[n1]:4): Broken pipe",
    HEAD + "Stack trace of the failed collective: \n#0 all_reduce from /opt/c10d.py:2501\n#1 main from /app/train.py:8",
    "[rank{rank}]:[E901 05:20:03.011 x.cpp:1] Rank {rank}\n\t - [{rank}] Timeout at collective: ALLREDUCE, #7\n\t   - [1] joined but didn't finish collective #7 (count from 1)\n\t     [2] finished collective #6, but didn't join collective #7 (count from 1)",
    "RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[4, 8], TensorDtypes=Float, TensorDeviceTypes=x), but Rank 1",
    "RuntimeError: [Rank 0]: Ranks 1, {rank} failed to pass monitoredBarrier in 3000 ms",
    "Waiting in store based barrier to initialize process group for rank: {rank}, key: store_based_barrier_key:1 (world_size=2, worker_count=4, timeout=0:30:00)",
    "[E socket.cpp:1] [c10d] The client socket has failed to connect to [node01]:29500 (errno: 111 - Connection refused).",
    "wait timeout after 300000ms, keys: /default_pg/0//cuda//0",
    "n1:7{rank}:71 [0] NCCL INFO ncclCommInitRank comm 0x55 rank {rank} nranks 4 cudaDev 0 nvmlDev 0 busId 18000 commId 0xb8 - Init START",
    "n1:7{rank}:71 [0] NCCL INFO AllReduce: opCount 1a sendbuff 0x7f recvbuff 0x7f count 5 datatype 7 op 0 root 0 comm 0x55 [nranks=4] stream 0x56",
    "[2026-09-01 05:20:00] n1:7{rank}:71 [0] transport/net_ib.cc:99 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<1> with status=12 opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:10.0.0.1 remoteGids::ffff:10.0.0.2 hca mlx5_0",
    '[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "/app/train.py", line 8, in main\n[rank{rank}]:     step()\n[rank{rank}]: ValueError: bad',
    "E0330 16:20:47.419000 12 site-packages/torch/distributed/elastic/multiprocessing/api.py:8] failed (exitcode: -9) local_rank: {rank} (pid: 71) of binary: /usr/bin/python",
    "  5%|1   | 3/60 [00:03<01:00,  9.9it/s]\r 10%|2   | 6/60 [00:06<00:54,  9.9it/s]",
    "[2026-09-01 05:20:00 DP0 TP{rank}] Decode batch. #running-req: 3",
    "2026-09-01 05:20:00,123 [rank {rank}] INFO train: step 7 loss 0.5",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=42.0. Some of the step tasks have been OOM Killed.",
]  # fmt: skip


def job(chance: Random) -> list[str]:
    """Some of the lines, of some ranks, in any order."""
    return [text.format(rank=chance.randrange(4)) for text in chance.choices(TELLING, k=chance.randrange(1, 30))]


def launched(texts: list[str], chance: Random) -> bytes:
    """The lines behind a launcher's label, or broken by a terminal."""
    flat = [part for text in texts for part in text.split("\n")]
    kind = chance.choice(("none", "srun", "mpirun", "ray", "json", "pdsh", "wrapped"))
    if kind == "wrapped":
        width = chance.choice((60, 80, 120))
        flat = [text[at : at + width] for text in flat for at in range(0, max(1, len(text)), width)]
    labels = {
        "srun": "{n}: ",
        "mpirun": "[1,{n}]<stderr>:",
        "ray": "\x1b[36m(W pid={n}, ip=10.0.0.1)\x1b[0m ",
        "pdsh": "node{n}: ",
    }
    if kind in labels:
        flat = [labels[kind].format(n=chance.randrange(4)) + text for text in flat]
    if kind == "json":
        flat = [json.dumps({"log": text + "\n", "time": "2026-09-01T05:20:00Z"}) for text in flat]
    return "\n".join(flat).encode()


FRAGMENTS = [
    b"[rank", b"[rank3]:[E", b"[E901 05:20:03.0 a.cpp:1] ", b"[PG ID 1 PG GUID ", b"WorkNCCL(SeqNum=", b" NCCL INFO ", b"3: ", b"\r", b"\x1b[",
    b"(a pid=", b"{\"log\":\"", b"\n\t - [", b"NumelIn=9999999999999999999", b"Rank ", b"Traceback (most recent call last):\n", b"  File \"",
    b"Ranks 1, 2, 3, ", b"collective #99999999999999999999", b"TP0 DP9] ", b"2026-99-99 25:61:61 ", b"\xff\xfe", b"1/0", b"[1, 2, 3",
]  # fmt: skip


def is_sound(data: bytes) -> bool:
    """As `check`, and lines are in the log; events come in their order; speakers are told once."""
    kept: list[Parsed[Any]] = []

    def parse(data: bytes) -> Parsed[Any]:
        kept.append(logs.parse(data))
        return kept[-1]

    if not check(parse, data):
        return False
    records = kept[-1].records
    count = data.count(b"\n") + 1
    events = [one for one in records if isinstance(one, LogEvent)]
    assert [event.line for event in events] == sorted(event.line for event in events)
    for one in records:
        for line in one.line if isinstance(one, OpTrace) else [one.last_line if isinstance(one, Speaker) else one.line]:
            assert 1 <= line <= count
    speakers = [(one.rank, one.host, one.pid) for one in records if isinstance(one, Speaker)]
    assert len(speakers) == len(set(speakers))
    return True


@settings(max_examples=250, deadline=None)
@given(seed=st.integers(0, 1 << 40))
def test_damaged_logs(seed: int) -> None:
    chance = Random(seed)
    data = mutated(launched(job(chance), chance), chance)
    for _ in range(chance.randrange(3)):
        place = chance.randint(0, len(data))
        data = data[:place] + chance.choice(FRAGMENTS) * chance.choice((1, 1, 50)) + data[place:]
    is_sound(data)


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=400) | st.lists(st.sampled_from(FRAGMENTS), max_size=30).map(b"".join))
@example(data=b"")
@example(data=b"\n\r\r\n")
def test_any_bytes(data: bytes) -> None:
    is_sound(data)


LOCAL = (WorkTimeout, GroupProgress, DumpSignal, StoreWait, StoreUnreachable)


def local_facts(log: bytes, before: int) -> list[tuple[int, object]]:
    """What lines before that one tell by themselves."""
    events = [one for one in logs.parse(log).records if isinstance(one, LogEvent)]
    return [(one.line, one.what) for one in events if isinstance(one.what, LOCAL) and one.line < before]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 40), data=st.data())
def test_a_log_cut_anywhere_tells_the_same_up_to_the_cut(seed: int, data: Any) -> None:
    whole = "".join(text + "\n" for text in job(Random(seed)) if "\n" not in text).encode()
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    last = cut.count(b"\n") + 1
    assert local_facts(cut, last) == local_facts(whole, last)


@pytest.mark.parametrize("fragment", FRAGMENTS + [text.format(rank=3).encode() for text in TELLING])
@pytest.mark.parametrize("end", [b"", b" ", b"\n"])
def test_long_repetitions_take_linear_time(fragment: bytes, end: bytes) -> None:
    is_sound((fragment + end) * (30_000 // len(fragment)))


@pytest.mark.parametrize("module", logs.find_families(), ids=lambda module: module.__name__.rpartition(".")[2])
def test_no_line_takes_a_recognizer_long(module: Any) -> None:
    """16 KiB are the longest line there is; every recognizer reads hundreds of them in a log."""
    reader = module.RECOGNIZER()
    chance = Random(1)
    for text in [text.format(rank=1) for text in TELLING]:
        at = chance.randint(0, len(text))
        piece = text[at : at + 40] or text
        for long in (
            piece * (16_384 // len(piece)),
            text[:at] + " " * 16_000 + text[at:],
            text[:at] + "9" * 16_000 + text[at:],
        ):
            started = time.process_time()
            for event in reader.feed(LogLine(number=1, text=long, rank=1)):
                assert event.line == 1
            assert time.process_time() - started < 0.5, (module.__name__, long[:200])


def _run_by_hand(count: int) -> None:
    """`python -m tests.property.test_logs 10000`: that many damaged logs."""
    slowest, kept = 0.0, 0
    for number in range(count):
        chance = Random(number)
        data = mutated(launched(job(chance), chance), chance)
        begun = time.monotonic()
        try:
            kept += is_sound(data)
        except BaseException:
            Path("damaged").write_bytes(data)
            raise
        slowest = max(slowest, time.monotonic() - begun)
    print(f"{count} logs, {kept} with records, slowest {slowest * 1e3:.0f} ms")


if __name__ == "__main__":
    import sys

    _run_by_hand(int(sys.argv[1]))
