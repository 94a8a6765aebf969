"""Which lines of a piece hold a word."""

from random import Random

import pytest

from ncclprobe.parse.log.needles import Needles


def lines_found(needles: Needles, data: bytes) -> set[int]:
    broken = data.replace(b"\r", b"\n")
    return {broken.count(b"\n", 0, place) for place in needles.places(data)}


def test_an_empty_word_is_in_no_line() -> None:
    assert Needles([b"", b"watchdog"]).places(b"one\na watchdog\n") == [6]


@pytest.mark.parametrize("seed", range(40))
def test_the_same_lines_as_a_plain_search(seed: int) -> None:
    chance = Random(seed)
    letters = [b"a", b"b", b"1", b".", b" ", b"x"]
    words = [b"".join(chance.choices(letters, k=chance.randint(1, 4))) for _ in range(4)]
    needles = Needles(words)
    for _ in range(10):
        lines = [b"".join(chance.choices(letters, k=chance.randint(0, 9))) for _ in range(8)]
        data = chance.choice((b"\n", b"\r")).join(lines) + b"\n"
        assert lines_found(needles, data) == {
            number for number, line in enumerate(lines) if any(word in line for word in words)
        }
