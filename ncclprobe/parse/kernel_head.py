"""Whether a file is a kernel log, told from its beginning.

In: the first bytes of a file. Out: yes or no. A program's log that quotes a line of the kernel is none.
"""

import re

from ncclprobe.parse.kernel_lines import is_json

_MAX_LINES = 2_000
_SHORT_LINES = 30

_STAMPED = re.compile(
    rb"\s{0,16}(?:[\w.-]{1,253}: (?=[\[<]))?(?:kern *: *\w+ *: +)?(?:<\d{1,3}>)?"
    rb"(?:\[ *\d+\.\d{6}[^\]]{0,20}\]|\[ *\+\d+\.\d{6}\]|\[\w{3} ?\d{1,2} \d\d:\d\d\]"
    rb"|\[\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\] |\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d "
    rb"|\d+,\d+,\d+,[^;]{0,64};)"
)
# The journal and syslog: what other programs say stands between the kernel's lines.
_SYSLOG = re.compile(
    rb"\s{0,16}(?:[\w.-]{1,253}: )?(?:\w{3} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"
    rb"|(?:\w{3} )?\d{4}-\d\d-\d\d[T ][\d:.]{8,18}(?: \w{1,5}|[+-]\d\d:?\d\d|Z)?|\d{9,11}\.\d{1,9})"
    rb" \S{1,253} (?P<program>[\w./()@-]{1,64})(?:\[\d{1,9}\])?: "
)
# Without any time: `dmesg -t`, `journalctl -o cat`, or pasted in pieces.
_BARE = re.compile(
    rb"\s{0,16}(?:oom-kill:|Out of memory: |Memory cgroup out of memory: |oom_reaper: |NVRM: "
    rb"|INFO: task .{1,64} blocked|nvidia-nvswitch\d*: |.{1,32} invoked oom-killer: )"
)
_NOISE = re.compile(rb"\s*(?:[$#>]\s|```|\S{0,64}[$#] |-- )")


def is_kernel_log(head: bytes) -> bool:
    """Most lines are the kernel's, or it is short and half of them tell of a kill for memory, a hung task or a GPU."""
    if b"\0" in head:
        return False
    if is_json(head):
        return _is_kernel_json(head)
    lines = [line for line in head.split(b"\n", _MAX_LINES)[:_MAX_LINES] if line.strip() and not _NOISE.match(line)]
    stamped = sum(_STAMPED.match(line) is not None for line in lines)
    programs = [found["program"] for found in map(_SYSLOG.match, lines) if found]
    of_kernel = stamped + programs.count(b"kernel")
    if of_kernel and 2 * (stamped + len(programs)) > len(lines):
        return True
    bare = sum(_BARE.match(line) is not None for line in lines)
    return len(lines) <= _SHORT_LINES and bare > 0 and 2 * (bare + of_kernel) >= len(lines)


def _is_kernel_json(head: bytes) -> bool:
    """`dmesg -J`, or a journal of which half the entries are the kernel's."""
    if b'"dmesg"' in head[:64]:
        return True
    entries = head.count(b'"__REALTIME_TIMESTAMP"')
    return 2 * len(re.findall(rb'"_TRANSPORT"\s{0,9}:\s{0,9}"kernel"', head)) >= entries
