"""What kind of evidence a file holds, told from its content, and whose it is, told from its name.

In: the first bytes of a file, its name. Out: a `Kind` or None; a rank or None.
"""

import re

from ncclprobe.model.evidence import Kind

HEAD_BYTES = 64 << 10

_RECORDER_KEYS = (b'"pg_config"', b'"profiling_name"', b'"pg_status"')
_STACK_KEYS = (b'"frames"', b'"thread_name"')
_KERNEL_LINE = re.compile(
    rb"(?m)^(?:<\d+>|\w+ *: *\w+ *: )?\[ *\d+\.\d{6}\]|^\d+,\d+,\d+,"
    rb"|^\[\w{3} \w{3} [ \d]\d [\d:]{8} \d{4}\] |^\d{4}-\d\d-\d\dT[\d:]{8},\d{6}[+-]"
    rb"|oom-kill:|Out of memory: |out of memory: Kill| kernel: "
)
# torch's own stems, and what people rename them to: the rank is the last number before any suffix.
_NAMED_RANK = re.compile(r"(?:rank|dump|trace)[_.\-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(\d{1,7})(?:\.[A-Za-z]\w*)*$")


def kind_of(head: bytes, name: str) -> Kind | None:
    """The kind of a file that starts with `head`; None when it is none that can be parsed."""
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return Kind.FLIGHT_RECORDER
    text = head.lstrip()
    kind = _kind_of_json(text) if text[:1] in (b"{", b"[") else None
    if kind is None and name.endswith(".py"):
        return Kind.USER_CODE
    if kind is None and b"\0" not in head and _KERNEL_LINE.search(head):
        return Kind.KERNEL_LOG
    return kind


def _kind_of_json(text: bytes) -> Kind | None:
    if any(key in text for key in _RECORDER_KEYS):
        return Kind.FLIGHT_RECORDER
    if text[:1] == b"[" and all(key in text for key in _STACK_KEYS):
        return Kind.STACKS
    if re.match(rb'\{\s*"processes"', text):
        return Kind.PROCESSES
    return Kind.GPU if re.match(rb'\{\s*"(driver|gpus)"', text) else None


def rank_in_name(name: str) -> int | None:
    """`nccl_trace_rank_3`, `comm_lib_trace_rank_3`, `_dump_3`, `rank3.look2.json`, `3.pickle`; None for no number."""
    named = _NAMED_RANK.search(name)
    match = named or _LAST_NUMBER.search(name)
    return int(match[1]) if match else None
