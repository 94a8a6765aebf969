"""Which lines of a long log are heard, and with what numbers."""

import io

import pytest

from ncclprobe.parse.log import stream as module
from ncclprobe.parse.log.stream import Heard, Stream

STEP = b"step 1 of a long training run\n"


def heard(log: bytes, words: tuple[bytes, ...] = (b"ERROR",), blocks: tuple[bytes, ...] = ()) -> list[Heard]:
    return list(Stream(io.BytesIO(log), words, blocks).lines())


@pytest.fixture
def short_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends of 300 bytes, read 100 at a time."""
    monkeypatch.setattr(module, "HEAD_BYTES", 300)
    monkeypatch.setattr(module, "TAIL_BYTES", 300)
    monkeypatch.setattr(module, "NEAR_BYTES", 100)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 100)


def test_all_lines_of_a_short_log() -> None:
    assert [(line.number, line.raw) for line in heard(b"a\n\nb\r\nc")] == [(1, b"a"), (3, b"b"), (4, b"c")]


def test_carriage_returns_end_lines_but_do_not_count() -> None:
    log = b" 1%|\r 2%|\r 3%|[rank5]: x\nnext\n"
    assert [(line.number, line.raw) for line in heard(log)] == [
        (1, b" 1%|"),
        (1, b" 2%|"),
        (1, b" 3%|[rank5]: x"),
        (2, b"next"),
    ]


def test_long_lines_are_cut() -> None:
    (line, after) = heard(b"x" * (3 << 20) + b"\nERROR\n")[-2:]
    assert len(line.raw) == module.MAX_LINE_BYTES
    assert (after.number, after.raw) == (2, b"ERROR")


@pytest.mark.usefixtures("short_ends")
def test_between_the_ends_only_telling_lines_are_heard() -> None:
    log = STEP * 100 + b"an ERROR\n" + STEP * 100
    lines = heard(log)
    assert [line.number for line in lines if line.raw == b"an ERROR"] == [101]
    assert lines[0].number == 1
    assert lines[-1].number == 201
    near = [line.number for line in lines if line.is_near]
    assert {*range(1, 11), *range(199, 202)} <= set(near) <= {*range(1, 16), *range(196, 202)}
    assert len(lines) < 30


@pytest.mark.usefixtures("short_ends")
def test_numbers_are_right_at_every_place() -> None:
    for place in range(1, 60):
        log = STEP * place + b"an ERROR\n" + STEP * (60 - place)
        lines = heard(log)
        assert [line.number for line in lines if line.raw == b"an ERROR"] == [place + 1]
        assert all(line.has_word for line in lines if b"ERROR" in line.raw)
        assert [line.number for line in lines][-5:] == [57, 58, 59, 60, 61]


@pytest.mark.usefixtures("short_ends")
def test_a_block_is_heard_after_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_LINES", 5)
    log = STEP * 100 + b"Traceback\n" + STEP * 100
    numbers = [line.number for line in heard(log, blocks=(b"Traceback",))]
    assert [number for number in numbers if 60 < number < 150] == [101, 102, 103, 104, 105, 106]


@pytest.mark.usefixtures("short_ends")
def test_a_flood_of_telling_lines_ends_at_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BETWEEN", 50)
    log = b"one more ERROR\n" * 1_000
    stream = Stream(io.BytesIO(log), (b"ERROR",), ())
    lines = list(stream.lines())
    assert len(lines) < 150
    assert lines[-1].number == 1_000
    assert stream.left_out_from is not None


@pytest.mark.usefixtures("short_ends")
def test_a_log_that_cannot_be_sought_and_comes_in_bits() -> None:
    class Slow(io.BytesIO):
        def read(self, size: "int | None" = -1) -> bytes:
            return super().read(min(size or 1, 7))

        def seek(self, *_: object) -> int:
            raise io.UnsupportedOperation

    log = STEP * 50 + b"an ERROR\n" + STEP * 50
    lines = list(Stream(Slow(log), (b"ERROR",), ()).lines())
    assert [line.number for line in lines if line.raw == b"an ERROR"] == [51]
    assert lines[-1].number == 101
