"""Exports that list the newest line first are read from the other end."""

import json

import pytest

from ncclprobe.model.log import Raised
from ncclprobe.parse.log.newest_first import is_newest_first
from ncclprobe.parse.log.parse import parse

TEXTS = [
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "/a.py", line 3, in f',
    "[rank1]: KeyError: 'a'",
    "[rank0]: step 4",
    "[rank0]: step 5",
]
STAMPS = [f"2026-05-05T07:0{n}:00.5Z" for n in range(len(TEXTS))]
FORMS = [
    [json.dumps({"textPayload": text, "timestamp": stamp}) for stamp, text in zip(STAMPS, TEXTS, strict=True)],
    [f"{stamp}\t{text}" for stamp, text in zip(STAMPS, TEXTS, strict=True)],
    [f"{stamp} stderr F {text}" for stamp, text in zip(STAMPS, TEXTS, strict=True)],
]


def log(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


@pytest.mark.parametrize("lines", FORMS)
def test_lines_are_those_of_the_file(lines: list[str]) -> None:
    for text, place in ((lines, 3), (lines[::-1], 3)):
        (said,) = (r for r in parse(log(text)).records if isinstance(getattr(r, "what", None), Raised))
        assert (said.what.exception, said.rank, said.line) == ("KeyError", 1, place)  # type: ignore[union-attr]
        assert [frame.line for frame in said.what.stack] == [3]  # type: ignore[union-attr]
        assert said.is_newest_first is (text is not lines)  # type: ignore[union-attr]


def test_only_where_no_time_rises() -> None:
    lines = FORMS[0]
    assert is_newest_first(log(lines[::-1]))
    assert not is_newest_first(log(lines))
    assert not is_newest_first(log([*lines[:0:-1], lines[4]]))
    assert not is_newest_first(log(lines[2::-1]))  # too few to tell
    assert not is_newest_first(log([f"2026-05-05 07:0{n}:00 step" for n in range(9, 0, -1)]))
