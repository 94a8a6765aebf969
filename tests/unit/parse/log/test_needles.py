"""Which lines of a piece hold a word."""

from random import Random

import pytest

from ncclprobe.parse.log.needles import Needles


def lines_found(needles: Needles, data: bytes) -> set[int]:
    broken = data.replace(b"\r", b"\n")
    return {broken.count(b"\n", 0, place) for place in needles.places(data)}


def test_words_that_hold_another_word_are_not_looked_for() -> None:
    assert Needles([b"NCCL WARN", b"NCCL", b"watchdog", b"watchdog"]).words == [b"NCCL", b"watchdog"]


def test_lines_that_differ_in_numbers_only() -> None:
    needles = Needles([b"E901 05", b"store based barrier"])
    for _ in range(2):
        assert lines_found(needles, b"step 1\nstep 2\n[E901 05:20] x\nstep 3\n") == {2}
        assert lines_found(needles, b"step 1\n[E902 05:20] x\nin store based barrier 7\n") == {2}


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
