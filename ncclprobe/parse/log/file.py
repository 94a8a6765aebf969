"""A log as bytes at hand, or as a file to be streamed.

In: bytes, or the path of a log that is too large to be carried about. Out: what `parse` says of it.
"""

from pathlib import Path
from typing import Any

from ncclprobe.parse.log.parse import parse
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.regular_file import open_regular


def parse_log(log: bytes | Path) -> Parsed[Any]:
    """ParseError when it is no text, or cannot be opened."""
    if isinstance(log, bytes):
        return parse(log)
    with open_regular(log) as file:
        return parse(file)
