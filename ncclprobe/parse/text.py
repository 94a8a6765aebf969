"""Text from strangers, made fit to show.

In: text from a dump, a log or a process. Out: one short line without control characters, direction marks and halves of
surrogate pairs, which could drive a terminal or break its encoding.
"""

import re

from ncclprobe.model.errors import ParseError

MAX_CHARACTERS = 4_096
_BLANKS = re.compile(r"[\t\n\r]")
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str, limit: int = MAX_CHARACTERS) -> str:
    """The first `limit` characters; blanks for line ends and tabs, U+FFFD for what is not fit to show."""
    cut = text[:limit]
    return cut if cut.isprintable() else _UNFIT.sub("\ufffd", _BLANKS.sub(" ", cut))


def decoded(data: bytes, what: str) -> str:
    """UTF-8 text, damaged characters replaced; ParseError that names `what` when it holds zero bytes."""
    if b"\0" in data:
        raise ParseError(f"not {what}: it holds binary data")
    return data.decode("utf-8-sig", "replace")
