"""Reports of NCCL's RAS service.

In: what `ncclras` or our client wrote: JSON (2.28.7 and later) or text (2.24 to 2.30), one report or several, with
whatever a person put around them. Out: `RasReport`s.
"""

import re

from ncclprobe.model.errors import ParseError
from ncclprobe.model.ras import RasReport
from ncclprobe.parse import ras_json, ras_text
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.text import decoded

_JSON_KEYS = (b'"communicators"', b'"communicators_count"', b'"nccl_version"', b'"cuda_runtime_version"')
_TEXT = re.compile(rb"[NR]CCL version \S{1,40} compiled with \w{1,8} ")
_SECTION = re.compile(rb"Job summary\s|Communicators\.\.\.|(?:CUDA|HIP) runtime version \d")
# A report begins soon; a training log that quotes one is a log.
_PREAMBLE_BYTES = 2_048


def is_ras(head: bytes) -> bool:
    """Whether a file that starts with `head` is such a report."""
    start = head[:_PREAMBLE_BYTES]
    if b"\0" in start:
        return False
    if b"{" in start and sum(key in head for key in _JSON_KEYS) >= 2:
        return True
    banner = _TEXT.search(start)
    return banner is not None and _SECTION.search(head, banner.end()) is not None


def parse(data: bytes) -> Parsed[RasReport]:
    """All reports, in the order of the file; ParseError when there is none."""
    text = decoded(data, "a RAS report")
    has_json = any(key.decode() in text for key in _JSON_KEYS)
    parsed = ras_json.parse(text) if has_json else ras_text.parse(text)
    if not parsed.records:
        raise ParseError("not a RAS report, or cut off before it says anything", "ask again with ncclras -v")
    return parsed
