"""Bytes as torch writes them."""

import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ncclprobe.model.frames import Frame
from ncclprobe.parse import data_pickle
from ncclprobe.simulate.torch_pickle import TorchPickle, integer

REAL_DUMP = """\
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1] + ".store", 1), rank=0, world_size=1)
def train():
    for size in range(1, 40):
        dist.all_reduce(torch.ones(size, 300))
    dist.barrier()
train()
open(sys.argv[1], "wb").write(torch._C._distributed_c10d._dump_fr_trace())
"""


@pytest.mark.parametrize("value", [0, 255, 256, 65535, 65536, -1, 2**31 - 1, 2**31, 1_760_000_000_000_000_000])
def test_integers_survive_in_the_form_torch_uses(value: int) -> None:
    assert data_pickle.load(b"\x80\x02" + integer(value) + b".") == value


def test_containers_texts_and_frames_are_written_once() -> None:
    frame = Frame("train", "train.py", 3)
    value = {"a": ["x", "x", True, None, 7], "b": ("x", "y"), "c": {}, "d": [], "e": [frame, frame]}
    writer = TorchPickle()
    data = writer.whole(writer.value(value))
    loaded = pickle.loads(data)
    plain = {"name": "train", "filename": "train.py", "line": 3}
    assert loaded == {**value, "e": [plain, plain]}
    assert loaded["e"][0] is loaded["e"][1]
    assert data.count(b"train.py") == 1
    assert data_pickle.load(data) == loaded


def test_more_than_256_texts_are_kept_apart() -> None:
    writer = TorchPickle()
    texts = [str(number) for number in range(1000)] * 2
    assert pickle.loads(writer.whole(writer.value(texts))) == texts


def test_chunks_are_kept_once_they_define_nothing() -> None:
    writer = TorchPickle()
    calls = []

    def build() -> list[bytes]:
        calls.append(1)
        return [writer.text("new")]

    first, second, third = (writer.chunks("key", build) for _ in range(3))
    assert (first != second, second == third, len(calls)) == (True, True, 2)


def test_a_real_dump_comes_out_byte_for_byte(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    real = tmp_path / "real"
    subprocess.run([sys.executable, "-c", REAL_DUMP, str(real)], check=True, timeout=100, capture_output=True)
    data = real.read_bytes()
    document = pickle.loads(data)
    uses = Counter(_frame(frame) for entry in document["entries"] for frame in entry["frames"])
    writer = TorchPickle([frame for frame, count in uses.items() if count == 1])
    assert writer.whole(writer.value(_with_frames(document))) == data


def _frame(frame: dict[str, Any]) -> Frame:
    return Frame(frame["name"], frame["filename"], frame["line"])


def _with_frames(value: Any) -> Any:
    """Frames as our writer takes them."""
    if isinstance(value, dict) and set(value) == {"name", "filename", "line"}:
        return _frame(value)
    if isinstance(value, dict):
        return {key: _with_frames(inner) for key, inner in value.items()}
    return [_with_frames(inner) for inner in value] if isinstance(value, list) else value
