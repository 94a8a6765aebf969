"""What the kernel log says of the job's processes, its GPUs, its links and its storage.

In: nothing. Out: `KernelEvent`s: `OomKill`, and the others that can stop a rank.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OomKill:
    """The kernel killed a process for memory. `line` counts from 1 in the log; `when` is its own time text.

    `when_ns`: a dated line's time by the host's own clock, in ns since 1970 read as if it were UTC; None for times
    since boot, unless the log says when that was. `host` only where the line names it. Both are so for all events.
    """

    pid: int
    command: str
    cgroup: str | None
    anon_rss_kb: int | None
    line: int
    when: str
    quote: str
    when_ns: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """NVIDIA's driver reports an error of a GPU. `bus_id` in lower case with domain: `0000:9a:00.0`; `pid` the host's.

    `is_echo`: it follows from an earlier error or from the end of a process (43, 45, 137); `is_fatal`: the GPU, or the
    work on it, is lost; both are False for mere information. `meaning` and `action` are short texts for a person.
    """

    code: int
    bus_id: str
    pid: int | None
    text: str
    meaning: str
    action: str
    is_fatal: bool
    is_echo: bool
    line: int
    when: str
    quote: str
    when_ns: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFault:
    """Any other line that can explain a stopped rank.

    `kind`: `hung-task`, `lockup`, `segfault` (any crash of a process), `kernel-bug` (oops, panic), `storage` (NFS,
    Lustre, block device), `link-down`, `link-up`, `port` (cable, module, adapter), `pcie-fatal`, `pcie-uncorrected`
    (not fatal), `pcie-corrected`, `nvswitch` (SXid), `gpu-lost`. `device`: what it names: a bus id (as in `Xid`), an
    interface, a server, a CPU. `is_fatal`: it can stop a rank for good.
    """

    kind: str
    device: str
    pid: int | None
    command: str
    is_fatal: bool
    line: int
    when: str
    quote: str
    when_ns: int | None = None
    host: str | None = None


KernelEvent = OomKill | Xid | KernelFault
