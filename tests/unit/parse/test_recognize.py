"""What a file holds is told from its content, and whose it is from its name."""

import json
import pickle

import pytest

from ncclprobe.model.evidence import Kind
from ncclprobe.parse.recognize import kind_of, rank_in_name

STACKS = json.dumps([{"pid": 1, "thread_name": "MainThread", "frames": []}])
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
]


@pytest.mark.parametrize(("head", "name", "kind"), CONTENT)
def test_the_content_tells_the_kind(head: bytes, name: str, kind: Kind) -> None:
    assert kind_of(head, name) is kind


@pytest.mark.parametrize("head", [b"", b"\x80", b"\0\1\2", b"hello", b"{}", b"[1, 2]", b"\x7fELF"])
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
