"""Whole logs."""

# ruff: noqa: E501  (lines of logs stay whole)

import io
import json
from typing import Any

import pytest

from ncclprobe.model.errors import ParseError
from ncclprobe.model.log import Aborted, GroupProgress, LogEvent, PeerLost, Speaker, StoreWait, WorkTimeout
from ncclprobe.parse.log import stream
from ncclprobe.parse.log.parse import find_families, parse

HEAD = "[rank{rank}]:[E901 05:20:03.01{rank}971373 ProcessGroupNCCL.cpp:632] "
TIMEOUT = (
    HEAD + "[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4,"
    " NumelOut=4, Timeout(ms)=1800000) ran for 1800123 milliseconds before timing out."
)
COUNTERS = (
    HEAD + "[PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: 7 PG status:"
    " last enqueued work: 9, last completed work: 6"
)
JOB = [text.format(rank=rank) for rank in range(4) for text in (TIMEOUT, COUNTERS)]


def lines(*texts: str) -> bytes:
    return "".join(text + "\n" for text in texts).encode()


def told(log: bytes, kind: type) -> list[tuple["int | None", Any]]:
    return [
        (event.rank, event.what)
        for event in parse(log).records
        if isinstance(event, LogEvent) and isinstance(event.what, kind)
    ]


def speakers(log: bytes) -> list[Speaker]:
    return [one for one in parse(log).records if isinstance(one, Speaker)]


def through(launcher: str) -> bytes:
    """The job's lines as they come out of a launcher."""
    ways: dict[str, Any] = {
        "none": lambda rank, text: text,
        "srun": lambda rank, text: f"{rank}: {text}",
        "mpirun": lambda rank, text: f"[1,{rank}]<stderr>:{text}",
        "torchrun": lambda rank, text: f"[default{rank % 2}]:{text}",
        "pdsh": lambda rank, text: f"node0{rank // 2}: {text}",
        "pdsh and torchrun": lambda rank, text: f"10.0.0.{rank // 2}: [default{rank % 2}]:{text}",
        "ray": lambda rank, text: (
            f"\x1b[36m(WorkerDict pid={100 + rank}, ip=10.0.0.1)\x1b[0m {text} \x1b[32m[repeated 7x across cluster]\x1b[0m"
        ),
        "vllm": lambda rank, text: f"(Worker_TP{rank} pid={100 + rank}) {text}",
        "docker": lambda rank, text: json.dumps(
            {"log": text + "\n", "stream": "stderr", "time": "2026-09-01T05:20:04.1Z"}
        ),
        "containerd": lambda rank, text: f"2026-09-01T05:20:04.123456789Z stderr F {text}",
        "kubectl": lambda rank, text: f"[pod/train-{rank}/main] {text}",
        "journal": lambda rank, text: f"Sep 01 05:20:04 node01 torchrun[71]: {text}",
        "bar": lambda rank, text: f"  5%|1   | 3/60 [00:03<01:00]\r 10%|2   | 6/60 [00:06<00:54]{text}",
        "windows": lambda rank, text: text + "\r",
        "ts": lambda rank, text: f"2026-09-01 05:20:04 {text}",
    }
    return lines(*(ways[launcher](index // 2, text) for index, text in enumerate(JOB)))


@pytest.mark.parametrize(
    "launcher",
    ["none", "srun", "mpirun", "torchrun", "pdsh", "pdsh and torchrun", "ray", "vllm", "docker", "containerd", "kubectl", "journal", "bar", "windows", "ts"],
)  # fmt: skip
def test_the_same_facts_through_any_launcher(launcher: str) -> None:
    log = through(launcher)
    assert [(rank, work.seq, work.op) for rank, work in told(log, WorkTimeout)] == [
        (rank, 7, "all_reduce") for rank in range(4)
    ]
    progress = told(log, GroupProgress)
    assert [(rank, one.last_enqueued, one.last_completed, one.failed) for rank, one in progress] == [
        (rank, 9, 6, 7) for rank in range(4)
    ]
    assert {one.rank for one in speakers(log)} >= {0, 1, 2, 3}
    assert parse(log).problems == ()


def test_a_broken_and_a_whole_log_tell_the_same() -> None:
    wrapped = "".join(text[at : at + 100] + "\n" for text in JOB for at in range(0, len(text), 100)).encode()
    assert told(wrapped, WorkTimeout) == told(lines(*JOB), WorkTimeout)
    assert told(wrapped, GroupProgress) == told(lines(*JOB), GroupProgress)


def test_the_year_of_torchs_lines_is_that_of_the_log() -> None:
    (event,) = (
        one
        for one in parse(lines("2025-08-31 23:00:00 start", JOB[0])).records
        if isinstance(one, LogEvent) and isinstance(one.what, WorkTimeout)
    )
    assert event.when_ns == 1_756_704_003_010_971_373
    (event,) = (
        one
        for one in parse(lines(JOB[0], "2025-09-01 06:00:00 end")).records
        if isinstance(one, LogEvent) and isinstance(one.what, WorkTimeout)
    )
    assert event.when_ns == 1_756_704_003_010_971_373


def test_more_workers_than_tasks_of_srun() -> None:
    wait = "INFO:torch.distributed.distributed_c10d:Waiting in store based barrier to initialize process group for rank: {rank}, key: store_based_barrier_key:1 (world_size=2, worker_count=4, timeout=0:30:00)"
    log = lines(*(f"{rank // 2}: {wait.format(rank=rank)}" for rank in range(4)), "0: => creating model", "1: x")
    assert [(rank, fact.rank) for rank, fact in told(log, StoreWait)] == [(rank, rank) for rank in range(4)]
    assert {one.rank for one in speakers(log)} == {None}


def test_who_was_heard_last() -> None:
    log = lines(
        "2026-09-01 05:00:00 [rank 0] INFO step 1",
        "2026-09-01 05:00:09 [rank 1] INFO step 1",
        "2026-09-01 05:10:00 [rank 0] INFO step 2",
        "srun: job done",
    )
    one, zero, nobody = speakers(log)
    assert (one.rank, one.lines, one.last_words) == (1, 1, "2026-09-01 05:00:09 [rank 1] INFO step 1")
    assert (zero.rank, zero.lines, zero.last_line, zero.last_ns) == (0, 2, 3, 1_788_239_400_000_000_000)
    assert (nobody.rank, nobody.last_line) == (None, 4)


def test_a_flood_is_thinned_out_and_said() -> None:
    lost = HEAD + "[c10d] sendBytes failed on SocketImpl(fd=97, addr=[n2]:5, remote=[n1]:4): Broken pipe"
    parsed = parse(lines(*(lost.format(rank=number % 2) for number in range(1_000))))
    floods = [one for one in parsed.records if isinstance(one, LogEvent) and isinstance(one.what, PeerLost)]
    assert len(floods) == 80
    assert (floods[0].line, floods[-1].line) == (1, 1_000)
    assert parsed.problems == ("920 repetitions of one kind of line (PeerLost) were left out",)


def test_a_telling_line_in_the_middle_of_a_long_log(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEAD_BYTES", "TAIL_BYTES", "NEAR_BYTES", "_CHUNK_BYTES"):
        monkeypatch.setattr(stream, name, 1_000)
    steps = [f"step {number} loss 0.5" for number in range(500)]
    records = parse(lines(*steps, JOB[0], *steps)).records
    (event,) = (one for one in records if isinstance(one, LogEvent) and isinstance(one.what, WorkTimeout))
    assert (event.line, event.rank) == (501, 0)
    (two,) = (one for one in records if isinstance(one, Speaker) and one.rank is None)
    assert (two.last_line, two.last_words) == (1_001, "step 499 loss 0.5")


def test_an_open_file_and_bytes_are_the_same() -> None:
    assert parse(io.BytesIO(lines(*JOB))) == parse(lines(*JOB))


def test_binary_files_are_refused() -> None:
    with pytest.raises(ParseError, match="binary"):
        parse(b"\x7fELF\0\0")


def test_nothing_and_damaged_text() -> None:
    assert parse(b"").records == ()
    (speaker,) = speakers(b"\xff\xfe caf\xe9\n")
    assert speaker.last_words == "\ufffd\ufffd caf\ufffd"


def test_every_family_says_what_it_looks_for() -> None:
    families = find_families()
    assert {"torch_lines", "torch_start", "torch_desync"} <= {module.__name__.rpartition(".")[2] for module in families}
    for module in families:
        for word in (*module.NEEDLES, *module.BLOCK_NEEDLES):
            assert len(word) >= 4, (module.__name__, word)
            assert "\n" not in (word if isinstance(word, str) else word.decode())


def test_what_a_process_says_without_its_rank_is_still_of_its_rank() -> None:
    label = "(WorkerDict pid=71, ip=10.0.0.1) "
    log = lines(label + JOB[4], label + "NCCL communicator was aborted before it ended")
    assert told(log, Aborted) == [(2, Aborted())]
    assert [(one.rank, one.lines) for one in speakers(log)] == [(2, 2)]


def test_claims_of_lines_long_ago() -> None:
    log = lines("3: NCCL communicator was aborted", *["0: step"] * 10_000)
    assert told(log, Aborted) == [(3, Aborted())]
