"""Pickles that are data are read; all others are refused before anything of them is loaded."""

import os
import pickle
import struct
import time
import tracemalloc

import pytest

from ncclprobe.model.errors import ParseError
from ncclprobe.parse.data_pickle import MAX_BYTES, load

VALUE = {
    "text": "größe",
    "numbers": [0, 255, 256, 65_536, -1, 1 << 40, -(1 << 62)],
    "others": [None, True, False, 0.5],
    "pair": ("a", "b"),
    "empty": [{}, [], ()],
    "long": ["x" * 300],
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_data_of_every_protocol_comes_back(protocol: int) -> None:
    assert load(pickle.dumps(VALUE, protocol)) == VALUE


def test_many_objects_come_back() -> None:
    value = [[str(number), number] for number in range(100_000)]
    assert load(pickle.dumps(value, 2)) == value


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("/tmp/ncclprobe-was-fooled",)


HOSTILE = {
    "a class, by GLOBAL": pickle.dumps(_Evil(), 2),
    "a class, by STACK_GLOBAL": pickle.dumps(_Evil(), 4),
    "an instance, by INST": b"\x80\x02(S'x'\nios\nsystem\n.",
    "an instance, by OBJ": b"\x80\x02(cos\nsystem\no.",
    "an extension code": b"\x80\x02\x82\x01.",
    "a persistent id": b"\x80\x02Ppid\n.",
    "a persistent object": b"\x80\x02NQ.",
    "a duplicate": b"\x80\x02]2a.",
    "an integer of 100 digits": b"\x80\x02\x8a\x30" + b"\x01" * 48 + b".",
    "an integer of LONG4": b"\x80\x02\x8b\x04\x00\x00\x00\x01\x00\x00\x00.",
    "a bytearray of 4 EiB": b"\x80\x05\x96" + struct.pack("<Q", 1 << 62) + b".",
    "a set": pickle.dumps({1, 2}, 4),
    "protocol 0": pickle.dumps(VALUE, 0),
    "protocol 9": b"\x80\x09N.",
    "text": b"hello",
    "an ELF file": b"\x7fELF\x02\x01",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError):
        load(data)
    assert not os.path.exists("/tmp/ncclprobe-was-fooled")


def test_the_refusal_says_what_and_where() -> None:
    with pytest.raises(ParseError, match=r"refused: code b'c' at byte 2 "):
        load(b"\x80\x02cos\nsystem\n.")


@pytest.mark.parametrize("index", [0xFFFFFFFF, 0x20202020, 0x00FFFFFF])
def test_a_memo_bomb_takes_no_memory(index: int) -> None:
    """CPython would fill 16 bytes for each memo entry below the index."""
    tracemalloc.start()
    try:
        with pytest.raises(ParseError, match="refused"):
            load(b"\x80\x02Nr" + struct.pack("<I", index) + b".")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_every_cut_is_noticed() -> None:
    whole = pickle.dumps(VALUE, 2)
    for end in range(len(whole)):
        with pytest.raises(ParseError):
            load(whole[:end])
    with pytest.raises(ParseError, match="cut off"):
        load(whole[:-3])


@pytest.mark.parametrize(
    "data", [b"\x80\x02.", b"\x80\x02u.", b"\x80\x02]u.", b"\x80\x02h\x01.", b"\x80\x02X\x02\0\0\0\xff\xff."]
)
def test_codes_out_of_order_are_damage(data: bytes) -> None:
    with pytest.raises(ParseError, match="damaged"):
        load(data)


def test_a_giant_is_refused_unread() -> None:
    with pytest.raises(ParseError, match="64 MiB is larger"):
        load(b"\x80\x02" + b"]" * MAX_BYTES)


def test_the_check_is_linear() -> None:
    def seconds(size: int) -> float:
        started = time.process_time()
        with pytest.raises(ParseError):
            load(b"\x80\x02" + b"K1" * size + b"c")
        return time.process_time() - started

    seconds(1_000)
    assert seconds(800_000) < 40 * max(seconds(80_000), 0.005)


def test_deep_nesting_loads() -> None:
    depth = 100_000
    value = load(b"\x80\x02" + b"](" * depth + b"e" * depth + b".")
    for _ in range(depth - 1):
        (value,) = value
    assert value == []
