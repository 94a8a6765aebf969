"""Damage to files, of the kinds that happen and that people do on purpose.

In: the bytes of a file, a source of chance. Out: the bytes, damaged.
"""

from collections.abc import Callable
from random import Random

# Pieces that mean something to one format or another.
FRAGMENTS = (
    b"\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x80\x02",
    b"cos\nsystem\n",
    b"R.",
    b"r\xff\xff\xff\xff",
    b"q\x00h\x00\x86",
    b"(" * 50,
    b"]" * 50,
    b"\x86" * 20,
    b"\x8a\x09" + b"\x7f" * 9,
    b"X\xff\xff\xff\x7f",
    b"\x8c\xff",
    b"\x95" + b"\xff" * 8,
    b"[" * 200,
    b'{"a":' * 200,
    b"null",
    b"-1",
    b"1e999",
    b"NaN",
    b"9" * 30,
    b'"\\ud800"',
    b"\\u001b[2J",
    b"\x1b[2J",
    b"\n",
    b"\r",
    b"\xe2\x80\xae",
    b"Killed process ",
    b"oom-kill:",
    b") total-vm:",
    b"task_memcg=",
    b"if rank == 0:\n",
    b"    " * 120,
    b"not " * 200,
    b"lambda:" * 50,
)


def mutated(data: bytes, chance: Random) -> bytes:
    """Often one mutation, at most three, one after the other."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        data = chance.choice(_MUTATIONS)(data, chance)
    return data


def _place(data: bytes, chance: Random) -> int:
    return chance.randint(0, len(data))


def _cut(data: bytes, chance: Random) -> bytes:
    return data[: _place(data, chance)]


def _behead(data: bytes, chance: Random) -> bytes:
    return data[_place(data, chance) :]


def _flip(data: bytes, chance: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5)) if data else 0):
        changed[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(changed)


def _remove(data: bytes, chance: Random) -> bytes:
    start = _place(data, chance)
    return data[:start] + data[start + chance.randint(1, 40) :]


def _repeat(data: bytes, chance: Random) -> bytes:
    start = _place(data, chance)
    piece = data[start : start + chance.randint(1, 200)]
    return data[:start] + piece * chance.randint(2, 20) + data[start:]


def _insert(data: bytes, chance: Random) -> bytes:
    start = _place(data, chance)
    return data[:start] + chance.choice(FRAGMENTS) + data[start:]


def _replace_digits(data: bytes, chance: Random) -> bytes:
    digit = str(chance.randrange(10)).encode()
    return data.replace(digit, chance.choice((b"-1", b"9" * 25, b"null", b'"1"', b"", b"1.5")), 3)


_MUTATIONS: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(_flip, _insert, _replace_digits) * 4,
    *(_remove, _repeat) * 2,
    _cut,
    _behead,
)
