"""Nothing that comes out of a parser can drive a terminal or break its encoding."""

import pytest

from ncclprobe.model.errors import ParseError
from ncclprobe.parse.text import clean, decoded


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain (größe) 日本", "plain (größe) 日本"),
        ("two\nlines\tand\rmore", "two lines and more"),
        ("\x1b]0;title\x07", "\ufffd]0;title\ufffd"),
        ("half \ud83d", "half \ufffd"),
        ("abc\u202edef\u2066", "abc\ufffddef\ufffd"),
        ("\x9b31m", "\ufffd31m"),
    ],
)
def test_what_is_not_fit_to_show_is_replaced(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    clean(text).encode()


def test_text_is_cut() -> None:
    assert clean("x" * 10_000) == "x" * 4_096
    assert clean("abc", 2) == "ab"


def test_bytes_become_text() -> None:
    assert decoded(b"\xef\xbb\xbfab\xff", "a log") == "ab\ufffd"
    with pytest.raises(ParseError, match="not a log: it holds binary data"):
        decoded(b"a\0b", "a log")
