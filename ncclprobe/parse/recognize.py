"""What kind of evidence a file holds, told from its content, and whose it is, told from its name.

In: the first bytes of a file, its name. Out: a `Kind` or None; a rank or None.
"""

import re
from collections.abc import Callable

from ncclprobe.model.evidence import Kind
from ncclprobe.parse.gpu import is_gpu
from ncclprobe.parse.kernel_head import is_kernel_log
from ncclprobe.parse.nic import is_nic
from ncclprobe.parse.process_status import is_status
from ncclprobe.parse.ras import is_ras
from ncclprobe.parse.stacks import is_stacks

HEAD_BYTES = 64 << 10

_STRANGE = ("\ufffd", *map(chr, (*range(7), *range(14, 27), *range(28, 32), 127)))
_RECORDER_KEYS = (b'"pg_config"', b'"profiling_name"', b'"pg_status"')
_STACK_KEYS = (b'"frames"', b'"thread_name"')
# torch's own stems, and what people rename them to: the rank is the last number before any suffix.
_NAMED_RANK = re.compile(r"(?:rank|dump|trace)[_.\-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_OF_RANK = re.compile(r"(?<![A-Za-z])rank[_.\-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_BARE = re.compile(r"(\d{1,6})(?:\.[A-Za-z]\w*)*$")
_LAST_NUMBER = re.compile(r"(\d{1,7})(?:\.[A-Za-z]\w*)*$")


def kind_of(head: bytes, name: str) -> Kind | None:
    """The kind of a file that starts with `head`; None when it is none that can be parsed."""
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return Kind.FLIGHT_RECORDER
    if not head.strip() or not _is_text(head):
        return None
    text = head.lstrip()
    kind = _kind_of_json(text) if text[:1] in (b"{", b"[") else None
    return kind or next((kind for kind, is_such in _TEXTS if is_such(head, name)), None)


def _is_text(head: bytes) -> bool:
    """No zero bytes, and few that are neither printable nor parts of UTF-8; colours and bells of a terminal are."""
    if b"\0" in head:
        return False
    strange = sum(map(head.decode("utf-8", "replace").count, _STRANGE))
    return strange * 20 <= len(head)


# In this order: a stack in a log is a stack only where the file begins with it; any other text may be a log.
_TEXTS: tuple[tuple[Kind, Callable[[bytes, str], bool]], ...] = (
    (Kind.USER_CODE, lambda head, name: name.endswith(".py")),
    (Kind.RAS, lambda head, name: is_ras(head)),
    (Kind.STACKS, lambda head, name: is_stacks(head)),
    (Kind.GPU, lambda head, name: is_gpu(head)),
    (Kind.PROCESSES, lambda head, name: is_status(head)),
    (Kind.NIC, lambda head, name: is_nic(head)),
    (Kind.KERNEL_LOG, lambda head, name: is_kernel_log(head)),
    (Kind.RANK_LOG, lambda head, name: True),
)


def _kind_of_json(text: bytes) -> Kind | None:
    if any(key in text for key in _RECORDER_KEYS):
        return Kind.FLIGHT_RECORDER
    if text[:1] == b"[" and all(key in text for key in _STACK_KEYS):
        return Kind.STACKS
    if re.match(rb'\{\s*"processes"', text):
        return Kind.PROCESSES
    return Kind.GPU if re.match(rb'\{\s*"(driver|gpus)"', text) else None


def rank_of(kind: Kind, name: str) -> int | None:
    """Whose a file is, by its name. Only of a dump is any number the rank: `slurm-881.out` is not of rank 881."""
    if kind is Kind.FLIGHT_RECORDER:
        return rank_in_name(name)
    named = _OF_RANK.search(name) or (_BARE.match(name) if kind is Kind.STACKS else None)
    return int(named[1]) if named else None


def rank_in_name(name: str) -> int | None:
    """`nccl_trace_rank_3`, `comm_lib_trace_rank_3`, `_dump_3`, `rank3.look2.json`, `3.pickle`; None for no number."""
    named = _NAMED_RANK.search(name)
    match = named or _LAST_NUMBER.search(name)
    return int(match[1]) if match else None
