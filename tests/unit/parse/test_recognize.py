"""What a file holds is told from its content, and whose it is from its name."""

import json
import pickle

import pytest

from ncclprobe.model.evidence import Kind
from ncclprobe.parse.recognize import kind_of, rank_in_name, rank_of

STACKS = json.dumps([{"pid": 1, "thread_name": "MainThread", "frames": []}])
RAS = (
    b"NCCL version 2.26.2 compiled with CUDA 12.4\nCUDA runtime version 12040, driver version 12040\n\n"
    b"Job summary\n===========\n"
)
PY_SPY = (
    b"Process 7: python3 train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\n"
    b'Thread 7 (active): "MainThread"\n    <module> (train.py:1)\n'
)
CONTENT = [
    (pickle.dumps({"version": "2.10", "entries": []}, 2), "x", Kind.FLIGHT_RECORDER),
    (pickle.dumps([{"profiling_name": "nccl:all_reduce"}], 2), "x", Kind.FLIGHT_RECORDER),
    (b'{"version": "2.4", "pg_config": {}, "entries": []}', "x.log", Kind.FLIGHT_RECORDER),
    (STACKS.encode(), "x", Kind.STACKS),
    (b'{"processes": []}', "x", Kind.PROCESSES),
    (b'{"driver": "550", "gpus": []}', "x", Kind.GPU),
    (b"[  495.582151] Memory cgroup out of memory: Killed process 1 (x)", "x", Kind.KERNEL_LOG),
    (b"<3>[  495.582151] something", "x", Kind.KERNEL_LOG),
    (b"Nov 29 16:39:46 node1 kernel: something", "x", Kind.KERNEL_LOG),
    (b"[Sun Nov  9 16:39:46 2026] something", "x", Kind.KERNEL_LOG),
    (b"2026-11-29T16:39:46,582151+00:00 something", "x", Kind.KERNEL_LOG),
    (b"kern  :err   : [  495.582151] something", "x", Kind.KERNEL_LOG),
    (b"3,1234,495582151,-;something", "x", Kind.KERNEL_LOG),
    (b"import torch\n", "train.py", Kind.USER_CODE),
    (b"hello", "x", Kind.RANK_LOG),
    (b'{"message": {"message": "ValueError", "extraInfo": {}}}', "error.json", Kind.RANK_LOG),
    (b"\x1b[36m(WorkerDict pid=1)\x1b[0m caf\xc3\xa9 \xe2\x96\x8f\r\n", "driver.log", Kind.RANK_LOG),
    (RAS, "x", Kind.RAS),
    (PY_SPY, "x", Kind.STACKS),
]


@pytest.mark.parametrize(("head", "name", "kind"), CONTENT)
def test_the_content_tells_the_kind(head: bytes, name: str, kind: Kind) -> None:
    assert kind_of(head, name) is kind


@pytest.mark.parametrize("head", [b"", b" \n", b"\x80", b"\0\1\2", b"\x7fELF\x02\x01\x01", b"\x89PNG\r\n\x1a\n"])
def test_what_is_none_of_them_is_none(head: bytes) -> None:
    assert kind_of(head, "noise") is None


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_3", 3),
        ("comm_lib_trace_rank_12", 12),
        ("_dump_0", 0),
        ("rank3.look2.json", 3),
        ("node1_rank_7.pickle", 7),
        ("nccl-2024-rank5.json", 5),
        ("17.pkl", 17),
        ("17", 17),
        ("dump", None),
        ("train.py", None),
    ],
)
def test_the_name_tells_the_rank(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


@pytest.mark.parametrize(
    ("kind", "name", "rank"),
    [
        (Kind.FLIGHT_RECORDER, "17.pkl", 17),
        (Kind.RANK_LOG, "slurm-881.out", None),
        (Kind.RANK_LOG, "nccl.node01.30441.log", None),
        (Kind.RANK_LOG, "rank2.log", 2),
        (Kind.RANK_LOG, "train_rank-11.err", 11),
        (Kind.RANK_LOG, "crank3.log", None),
        (Kind.STACKS, "py-spy-rank3-worker2419.txt", 3),
        (Kind.STACKS, "stack.30441.txt", None),
        (Kind.STACKS, "4.json", 4),
        (Kind.KERNEL_LOG, "dmesg-node02.txt", None),
    ],
)
def test_only_a_dump_is_named_by_any_number(kind: Kind, name: str, rank: int | None) -> None:
    assert rank_of(kind, name) == rank
