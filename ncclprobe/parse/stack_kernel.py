"""What `/proc/PID/stack`, `/proc/PID/wchan` and `/proc/PID/syscall` say: where in the kernel a thread sleeps.

In: lines, as `cat`, `head` or `grep . /proc/*/stack` print them. Out: a dump for each process that is named, one for
lines without a name; frames innermost first.
"""

import re
from collections.abc import Sequence

from ncclprobe.model.frames import KERNEL
from ncclprobe.model.stacks import StackDump
from ncclprobe.parse.stack_reader import MAX_THREADS, Format, OpenThread, shortened, whole, without_parameters

_PATH = r"/proc/(?P<pid>\d{1,18})(?:/task/(?P<tid>\d{1,18}))?/(?:stack|wchan)"
# `==> PATH <==`, `PATH:[<0>] ...`, a shell's `$ cat PATH`, or the folder of a thread alone, as a loop echoes it.
_HEAD = re.compile(
    rf"\s*(?:==> |[^\[\]<>/]{{0,60}}\b(?:cat|head|more|sudo cat)(?: -\S{{1,8}})* )?{_PATH}(?: <==|:)?\s*(?P<rest>.*)$"
    r"|\s*/proc/(?P<own>\d{1,18})/task/(?P<thread>\d{1,18})/?:?\s*$"
)
_FRAME = re.compile(r"\s*\[<[0-9a-fA-F]+>\] (?P<function>[A-Za-z_][\w.]*)(?:\+0x|$)")
_WCHAN = re.compile(
    r"\s*(?P<function>(?:futex_|hrtimer_|poll_schedule|do_(?:sys_)?poll|do_epoll|ep_poll|do_wait|do_select|pipe_|anon_pipe"
    r"|n_tty_|unix_stream|sk_wait|inet_csk|rpc_wait|nfs\d?_|folio_wait|wait_on_page|io_schedule|blk_mq|cl_sync|osc_|ptlrpc"
    r"|request_wait|fuse_|jbd2_|xfs_|os_acquire|rm_|nv_|uvm_|nvidia|wait_woken|do_nanosleep|sigsuspend|ptrace_stop"
    r"|do_signal_stop|do_exit|kernel_wait|__refrigerator|balance_dirty|ceph_|gpfs|beegfs)[\w.]*)\s*$"
)


def read(lines: Sequence[str]) -> list[StackDump]:
    """By process, in order of first appearance."""
    processes: dict[int | None, dict[int | None, OpenThread]] = {}
    pid: int | None = None
    tid: int | None = None
    for line in map(shortened, lines):
        text = line
        if head := _HEAD.match(line):
            pid, text = whole(head["pid"] or head["own"]), head["rest"] or ""
            tid = whole(head["tid"] or head["thread"]) or pid
        match = _FRAME.match(text) or _WCHAN.match(text)
        if match and match["function"] not in ("do_syscall_64", "entry_SYSCALL_64_after_hwframe"):
            threads = processes.setdefault(pid, {})
            function = without_parameters(match["function"])
            threads.setdefault(tid, OpenThread(tid=tid)).add(function, KERNEL, None)
    return [
        StackDump(pid=pid, threads=tuple(thread.closed() for thread in list(threads.values())[:MAX_THREADS]))
        for pid, threads in processes.items()
    ]


_LINE = re.compile(
    rf"\s*\[<[0-9a-fA-F]+>\] \w|\s*(?:==> |[^\[\]<>/]{{0,60}}\b(?:cat|head|more)(?: -\S{{1,8}})* )?"
    rf"/proc/\d+(?:/task/\d+)?/(?:stack|wchan)|\s*/proc/\d+/task/\d+/?:?\s*$|(?:{_WCHAN.pattern})"
)
FORMAT = Format(name="stacks of the kernel", header=_LINE, line=_LINE, read=read)
