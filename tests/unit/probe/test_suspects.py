"""The ranks that deserve a closer look: few at a place, outside torch's waits."""

import json

import pytest

from ncclprobe.probe.suspects import find_suspects

REDUCE = [("all_reduce", "/x/site-packages/torch/distributed/distributed_c10d.py", 9), ("train", "/home/u/t.py", 8)]
OTHER_REDUCE = [*REDUCE[:1], ("train", "/home/u/t.py", 5)]
COMPUTE = [("compute", "/home/u/t.py", 3)]


def dump(frames: list[tuple[str, str, int]]) -> bytes:
    rows = [{"name": name, "filename": file, "line": line} for name, file, line in frames]
    return json.dumps([{"pid": 7, "thread_name": "MainThread", "frames": rows}]).encode()


@pytest.mark.parametrize(
    ("places", "suspects"),
    [
        ([REDUCE, REDUCE, REDUCE, COMPUTE], (3, 0)),
        ([REDUCE, REDUCE, REDUCE, OTHER_REDUCE, COMPUTE], (4, 3, 0)),
        ([REDUCE, COMPUTE], (1, 0)),
        ([REDUCE, REDUCE], (0,)),
        ([REDUCE], (0,)),
        ([], ()),
    ],
)
def test_who_they_are(places: list[list[tuple[str, str, int]]], suspects: tuple[int, ...]) -> None:
    assert find_suspects({pid: dump(frames) for pid, frames in enumerate(places)}) == suspects


def test_what_cannot_be_read_is_a_place_too() -> None:
    assert find_suspects({0: dump(REDUCE), 1: dump(REDUCE), 2: b"garbage"}) == (2, 0)
