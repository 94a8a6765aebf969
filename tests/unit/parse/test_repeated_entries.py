"""Leaving out what repeats changes nothing of what is read."""

import pickle
import struct
from random import Random

import pytest

from ncclprobe.model.errors import ParseError
from ncclprobe.parse import flight_recorder
from ncclprobe.parse.repeated_entries import fold, number
from tests.dumps import VERSIONS, WORLD, Group, call, document, frame
from tests.mutations import mutated
from tests.torch_pickle import torch_pickle

STEP, MAIN = frame("train_step", line=12), frame("<module>", line=40)
TENSOR = Group(name="7", description="tp", ranks=(0, 1), pg_id=2)
CALLS = [
    call("all_reduce", frames=[STEP, MAIN]),
    call("all_gather", group=TENSOR, sizes=[[2, 3]], output_sizes=[[2, 3], [2, 3]], frames=[MAIN]),
    call("send 0->1", dtypes=["BFloat16"]),
    call("all_reduce", frames=[STEP, MAIN]),
] * 50
FOLDING = [version for version in VERSIONS if version != "2.2"]


def dump_of(version: str = "2.10", completed_upto: int | None = 150) -> bytes:
    return torch_pickle(document(CALLS, version=version, groups=[WORLD, TENSOR], completed_upto=completed_upto))


def read_whole(data: bytes, monkeypatch: pytest.MonkeyPatch) -> str:
    with monkeypatch.context() as patch:
        patch.setattr(flight_recorder, "fold", lambda data: None)
        return read(data)


def read(data: bytes) -> str:
    try:
        return repr(flight_recorder.parse(data))
    except ParseError as error:
        return str(error)


@pytest.mark.parametrize("version", FOLDING)
def test_little_is_left_and_nothing_is_lost(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dump_of(version)
    folded = fold(data)
    assert folded is not None
    assert len(folded.rows) == len(CALLS)
    assert folded.count == len(pickle.loads(folded.data)["entries"]) < 20
    assert read(data) == read_whole(data, monkeypatch)


def test_damaged_dumps_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for number_of_damage in range(300):
        data = mutated(dump_of(), Random(number_of_damage))
        assert read(data) == read_whole(data, monkeypatch)


def test_numbers_of_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    made = document(CALLS)
    for place, value in enumerate((0, 255, 256, 65_535, 65_536, -1, -(1 << 31), 1 << 31, 1 << 40, 1 << 62)):
        made["entries"][100 + place]["time_created_ns"] = value
        made["entries"][120 + place]["collective_seq_id"] = value
    data = torch_pickle(made)
    assert fold(data) is not None
    assert read(data) == read_whole(data, monkeypatch)
    assert "damaged" in read(data)  # 1 << 62 is no number, nor time


def test_repeated_and_damaged_entries_are_counted_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    made = document(CALLS)
    made["entries"] += made["entries"][50:60]
    for entry in made["entries"][100:104]:
        entry["process_group"] = ("only", 5)
    data = torch_pickle(made)
    assert fold(data) is not None
    assert read(data) == read_whole(data, monkeypatch)
    assert "of its 210 entries repeat" in read(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x02}.",
        pickle.dumps(document(CALLS), 2),
        torch_pickle(document(CALLS[:1])),
        torch_pickle(document([call("all_reduce", frames=[frame("f", line=line)]) for line in range(50)])),
    ],
)
def test_what_torch_did_not_write_or_does_not_repeat_is_left_alone(data: bytes) -> None:
    assert fold(data) is None


def test_what_is_left_is_checked_like_any_pickle() -> None:
    data = dump_of()
    assert fold(data) is not None
    for hostile in (
        b"cos\nsystem\n0",
        b"Nr" + struct.pack("<I", 0xFFFFFFFF) + b"0",
        b"\x8b\x04\x00\x00\x00" + bytes(4),
    ):
        with pytest.raises(ParseError, match="refused"):
            flight_recorder.parse(data[:2] + hostile + data[2:])
        with pytest.raises(ParseError, match="refused"):
            flight_recorder.parse(data[:-1] + hostile + data[-1:])


def test_an_entry_without_end_is_not_matched_at_length() -> None:
    data = dump_of()
    folded = fold(data)
    assert folded is not None
    at = data.rindex(b"u}(h")
    long = data[:at] + data[at : at + 7] + b"h\x10" * 3_000_000 + data[at + 7 :]
    refolded = fold(long)
    assert refolded is not None
    assert refolded.count <= folded.count + 1


def test_codes_of_integers() -> None:
    for value in (0, 200, 60_000, 1 << 20, -5, -(1 << 31), 1 << 33, -(1 << 62)):
        assert number(torch_pickle(value)[2:].partition(b"q\x00.")[0]) == value
