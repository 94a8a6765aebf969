"""Who wrote a line: prefixes alone and in each other."""

from typing import Any

import pytest

from ncclprobe.parse.log.layout import Layout
from ncclprobe.parse.log.prefix import Claim, Prefixes, Said

TORCH = "[E901 05:20:03.011971373 ProcessGroupNCCL.cpp:632] "


def read(text: str, **layout: Any) -> list[Said]:
    return list(Prefixes(lambda: Layout(**layout)).read(7, text))


def only(text: str, **layout: Any) -> Said:
    (said,) = read(text, **layout)
    return said


@pytest.mark.parametrize(
    ("text", "rest", "fields"),
    [
        ("step 3", "step 3", {}),
        (f"[rank3]:{TORCH}x", f"[rank3]:{TORCH}x", {"rank": 3}),
        ("[rank3]: Traceback (most", "Traceback (most", {"rank": 3}),
        ("[rank3]:   File", "  File", {"rank": 3}),
        ("[rank5] step 1", "[rank5] step 1", {"rank": 5}),
        ("[default3]:[rank11] step", "[rank11] step", {"rank": 11, "local_rank": 3}),
        ("[default3]:step", "step", {"local_rank": 3}),
        (f"[default3]:[rank11]:{TORCH}x", f"[rank11]:{TORCH}x", {"rank": 11, "local_rank": 3}),
        ("[E ProcessGroupNCCL.cpp:719] [Rank 3] Watch", "[E ProcessGroupNCCL.cpp:719] [Rank 3] Watch", {"rank": 3}),
        (f"[rank9]:{TORCH}[Rank 1] W", f"[rank9]:{TORCH}[Rank 1] W", {"rank": 9}),
        (f"{TORCH}[PG ID 6 PG GUID 49(PP) Rank 1] x", f"{TORCH}[PG ID 6 PG GUID 49(PP) Rank 1] x", {"rank": None}),
        (f"{TORCH}[PG ID 0 PG GUID 0(default_pg) Rank 4] x", None, {"rank": 4}),
        (f"{TORCH}[PG 0 (default_pg) Rank 4] x", None, {"rank": 4}),
        (f"{TORCH}[PG 3 Rank 4] x", None, {"rank": None}),
        ("  what():  [Rank 2] Watchdog caught", None, {"rank": 2}),
        ("2026-09-14 06:00:10 [rank 0] INFO x", None, {"rank": 0}),
        ("[2026-09-14 06:00:10,1] [INFO] [a.b] [PID:91] [RANK:2] x", None, {"rank": 2, "pid": 91}),
        ("[rank: 3] Global seed set", None, {"rank": 3}),
        ("[2026-09-14 06:00:10,1] [INFO] [s.py:1] rank 6: x", None, {"rank": 6}),
        ("Epoch 9, Rank 5, world_size 8: 32batch", None, {"rank": 5}),
        ("node1 rank 3: RANK=3 WORLD_SIZE=8", None, {"rank": 3}),
        ("waiting for rank 5 to finish", None, {"rank": None}),
        ("(WorkerDict pid=40210, ip=10.0.5.12) hello", "hello", {"pid": 40210, "host": "10.0.5.12"}),
        ("(RayTrainWorker pid=615) hello", "hello", {"pid": 615}),
        ("(raylet, ip=10.0.5.12) hello", "hello", {"host": "10.0.5.12"}),
        ("(TrainWorker(rank=3) pid=61) hello", "hello", {"pid": 61}),
        ("(not a label) hello", "(not a label) hello", {}),
        (f"(W pid=4, ip=10.0.5.12) [rank6]:{TORCH}x", f"[rank6]:{TORCH}x",
         {"rank": 6, "pid": 4, "host": "10.0.5.12"}),
        ("(EngineCore_DP0 pid=4021) hello", "hello", {"pid": 4021}),
        ("10.0.0.1: [rank2]: x", "x", {"host": "10.0.0.1", "rank": 2}),
        ("[pod/train-3/main] x", "x", {"host": "train-3"}),
        ("worker-1  | [rank2]: x", "x", {"host": "worker-1", "rank": 2}),
        ("Nov 29 16:39:46 node02 torchrun[512]: [rank3]: x", "x", {"host": "node02", "pid": 512, "rank": 3}),
        ("2026-05-02T09:13:00.123456789Z stderr F [rank3]: x", "x", {"rank": 3}),
        ("node01:71:88 [3] NCCL INFO comm 0x1 rank 5 x", "node01:71:88 [3] NCCL INFO comm 0x1 rank 5 x",
         {"host": "node01", "pid": 71, "rank": None}),
        ("[rank2]:node01:71:88 [3] NCCL INFO x", None, {"host": "node01", "pid": 71, "rank": 2}),
        ("E0330 16:20:47.419000 12345 torch/x.py:8] failed", None, {"pid": 12345, "rank": None}),
    ],
)  # fmt: skip
def test_prefixes(text: str, rest: "str | None", fields: dict[str, Any]) -> None:
    line = only(text).line
    assert rest is None or line.text == rest
    assert line.number == 7
    for name in ("rank", "local_rank", "host", "pid"):
        if name in fields or rest is not None:
            assert getattr(line, name) == fields.get(name), name


def test_labels_of_srun_and_pdsh_need_a_log_full_of_them() -> None:
    assert only("3: x").line.text == "3: x"
    assert only(" 3: x", has_tasks=True) == only("3: x", has_tasks=True)
    assert only("3: x", has_tasks=True).claim == Claim(kind="task", number=3)
    assert only("node07: [rank2]: x", hosts=frozenset({"node07"})).line.host == "node07"
    assert only("node07: x").line.host is None
    assert only("0: node01:71:88 [3] NCCL INFO x", has_tasks=True).line.pid == 71


def test_mpirun() -> None:
    for text in ("[1,3]<stderr>:x", "[1,3]<stdout>: x", "[prterun-a-1@1,3]<stderr>: x"):
        said = only(text)
        assert (said.line.text, said.claim) == ("x", Claim(kind="mpi", number=3))


def test_sagemaker_names_the_rank_and_its_host() -> None:
    said = only("[1,mpirank:5,algo-2]<stdout>:x")
    assert (said.line.text, said.line.host, said.claim) == ("x", "algo-2", Claim(kind="mpi", number=5))


def test_a_time_before_a_label() -> None:
    said = only("Tue Mar  3 14:00:10 2026[1,6]<stderr>:[rank6]: x")
    assert (said.line.text, said.line.rank, said.claim) == ("x", 6, Claim(kind="mpi", number=6))
    assert said.line.when_ns == 1_772_546_410_000_000_000


def test_a_role_named_rank_counts_per_host() -> None:
    line = only("[rank5]:step 3", has_role_labels=True).line
    assert (line.text, line.rank, line.local_rank) == ("step 3", None, 5)
    line = only(f"[rank5]:[rank13]:{TORCH}x", has_role_labels=True).line
    assert (line.text, line.rank, line.local_rank) == (f"[rank13]:{TORCH}x", 13, 5)
    assert only("1: [rank5]: [rank13]: x", has_role_labels=True, has_tasks=True).line.rank == 13


def test_a_logger_that_counts_per_host() -> None:
    text = "[2026-09-14 06:00:10,1] [INFO] [a.b] [PID:91] [RANK:2] x"
    line = only(text, has_ranks_per_host=True).line
    assert (line.rank, line.local_rank, line.pid) == (None, 2, 91)


def test_labels_of_grep() -> None:
    for text in ("out/rank_3/stderr.log:x", "out/rank_3/stderr.log:17:x"):
        line = only(text, has_files=True).line
        assert (line.text, line.rank) == ("x", 3)
    assert only("out/rank_3/stderr.log:x").line.rank is None
    assert only("run/attempt_0/2/stdout.log:x", has_files=True).line.local_rank == 2


def test_lines_below_a_heading_are_of_its_rank() -> None:
    prefixes = Prefixes(Layout)
    texts = ["==> logs/rank2.log <==", "step 3", "[rank7]: x", "==> notes.txt <==", "y"]
    assert [said.line.rank for text in texts for said in prefixes.read(1, text)] == [None, 2, 7, None, None]


def test_inference_servers_name_axes() -> None:
    assert only("(Worker_TP1 pid=3920, ip=10.0.0.1) x").claim == Claim(kind="grid", axes=(("TP", 1),))
    assert only("(VllmWorker_PP1_TP3 pid=39) x").claim == Claim(kind="grid", axes=(("PP", 1), ("TP", 3)))
    said = only("[2026-05-02 09:13:00 DP0 TP3] Load weight end.")
    assert said.claim == Claim(kind="grid", axes=(("DP", 0), ("TP", 3)))
    assert said.line.text.startswith("[2026")


def test_the_innermost_global_rank_counts() -> None:
    said = only(f"[1,3]<stderr>:[default1]:[rank9]:{TORCH}[PG ID 2 PG GUID 9 Rank 4] x")
    assert (said.line.rank, said.line.local_rank, said.claim) == (9, 1, Claim(kind="mpi", number=3))


def test_a_line_that_begins_in_the_middle() -> None:
    first, second = read(f" 32batch [00:03, 9.98batch/s][rank5]:{TORCH}[Rank 5] Watchdog")
    assert first.line.text == " 32batch [00:03, 9.98batch/s]"
    assert (second.line.rank, second.line.text) == (5, f"[rank5]:{TORCH}[Rank 5] Watchdog")


def test_two_ranks_in_one_line() -> None:
    parts = read(f"[rank5]:{TORCH}[Rank 5] Watch[rank6]:{TORCH}[Rank 6] Watchdog caught")
    assert [part.line.rank for part in parts] == [5, 6]
    parts = read("  5%|1 | 3/9 [00:01<00:02][rank6]: Traceback (most recent call last):")
    assert [part.line.rank for part in parts] == [None, 6]
    assert parts[1].line.text == "Traceback (most recent call last):"


def test_a_clock_in_front_of_torchs_line_is_no_line() -> None:
    (said,) = read(f"2026-09-14 06:00:10 [rank9]:{TORCH}x")
    assert said.line.text == f"[rank9]:{TORCH}x"


@pytest.mark.parametrize(
    ("text", "rest", "host", "pid", "rank"),
    [
        ('{"log":"[rank3]: x\\n","stream":"stderr","time":"2026-05-05T20:41:11.5Z"}', "x", None, None, 3),
        ('{"message":"x","rank":4,"hostname":"n1","pid":17,"timestamp":1778013671.5}', "x", "n1", 17, 4),
        ('{"log":"x","kubernetes":{"pod_name":"p-0","host":"n2"}}', "x", "n2", None, None),
        ('{"MESSAGE":"x","_HOSTNAME":"n1","_PID":"17","__REALTIME_TIMESTAMP":"1778013671500000"}', "x", "n1", 17, None),
        (
            '{"textPayload":"x","resource":{"labels":{"pod_name":"p-1"}},"timestamp":"2026-05-05T20:41:11.5Z"}',
            "x",
            "p-1",
            None,
            None,
        ),
        ('{"jsonPayload":{"message":"x","rank":2},"timestamp":"2026-05-05T20:41:11.5Z"}', "x", None, None, 2),
        ('{"log":"[rank3]: it said \\"x', 'it said "x', None, None, 3),
        ('{"loss": 0.5, "epoch": 1}', '{"loss": 0.5, "epoch": 1}', None, None, None),
        ("{'loss': 0.5}", "{'loss': 0.5}", None, None, None),
    ],
)
def test_json(text: str, rest: str, host: "str | None", pid: "int | None", rank: "int | None") -> None:
    line = only(text).line
    assert (line.text, line.host, line.pid, line.rank) == (rest, host, pid, rank)
    if "time" in text.lower():
        assert line.when_ns == 1_778_013_671_500_000_000


def test_a_json_logger_keeps_the_traceback_apart() -> None:
    text = '{"message":"failed","rank":2,"exc_info":"Traceback (most recent call last):\\n  File \\"a.py\\", line 1"}'
    assert [said.line.text[:9] for said in read(text)] == ["failed", "Traceback", '  File "a']
    assert {said.line.rank for said in read(text)} == {2}


def test_colours_inside_json() -> None:
    assert only('{"log":"\\u001b[36m(W pid=4)\\u001b[0m x\\n"}').line.text == "x"


def test_json_with_several_lines() -> None:
    assert [said.line.text for said in read('{"log":"a\\nb\\n"}')] == ["a", "b"]


def test_a_log_level_is_no_host() -> None:
    assert only("2026-07-09T10:02:11Z INFO worker: connected").line.host is None


def test_speakers_tell_writers_apart() -> None:
    one = only("(WorkerDict pid=4, ip=10.0.0.1) Traceback").line.speaker
    assert one == only(f"(WorkerDict pid=4, ip=10.0.0.1) [rank6]:{TORCH}x").line.speaker
    assert one != only("(WorkerDict pid=5, ip=10.0.0.1) Traceback").line.speaker
    assert only("[rank3]: a").line.speaker == only("[rank3]:   File").line.speaker
    assert only("3: [rank3]: a", has_tasks=True).line.speaker != only("4: [rank4]: a", has_tasks=True).line.speaker
    assert only("a").line.speaker == ""


def test_a_global_label_counts_more_than_a_number_that_may_be_of_a_group() -> None:
    assert only("[rank4]: RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier").line.rank == 4
    assert only("[default3]:[Rank 3] Watchdog caught").line.rank == 3
    assert only("2026-06-01 10:00:00.123 | INFO     | rank3 | step 1").line.rank == 3
