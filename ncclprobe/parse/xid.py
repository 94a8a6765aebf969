"""Errors that NVIDIA's driver reports: Xids of a GPU, SXids of an NVSwitch.

In: lines of the kernel's log. Out: `Xid`s, and `KernelFault`s of kind `nvswitch`.

What a code means and what to do about it is NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors), shortened.
"""

import re
from typing import NamedTuple

from ncclprobe.model.bus_id import device_key
from ncclprobe.model.kernel import KernelFault, Xid
from ncclprobe.parse.kernel_lines import KernelLine
from ncclprobe.parse.text import clean

NEEDLES = ("NVRM: Xid", "SXid (")
_MAX_TEXT = 300

# MIG instances stand behind the bus id: `Xid (PCI:0000:9a:00 GPU-I:05): 13, ...`.
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)[^)]{0,80}\):"
    r" (?P<code>\d{1,5})(?!\d)(?:, pid='?(?P<pid>[^',]{1,40})'?)?(?:, name=(?P<name>[^,]{0,64}))?(?:, ?(?P<text>.*))?",
    re.DOTALL,
)
_SXID = re.compile(
    r"nvidia-nvswitch\d{0,4}: SXid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]{7,20})\): (?P<code>\d{1,6}),"
    r" (?:(?P<severity>Fatal|Non-fatal), ?)?(?P<text>.*)",
    re.DOTALL,
)
_SXID_DETAIL = re.compile(r"Severity \d|Data \{|Engine instance")


class _Code(NamedTuple):
    """`is_fatal` None: the text of the line says so (`Fatal`, `Nonfatal`)."""

    meaning: str
    action: str
    is_fatal: bool | None
    is_echo: bool = False


_RESTART = "restart the application; if it comes back on the same GPU, test that GPU"
_RESET = "reset the GPU (nvidia-smi -r) when nothing uses it; if it comes back, have it replaced"
_REBOOT = "reboot the host; if it comes back, have the GPU or its slot repaired"
_NOTHING = "none: it is information"
_SUPPORT = "no effect on a running job; tell NVIDIA's support if it stays"
_COPY_ENGINE = _Code("copy engine error", _RESTART, is_fatal=True)
_NVLINK5 = "for Fatal: check the link at both ends and reset the GPUs; for Nonfatal: none"
_DRAIN = "drain the host, then reset the GPU; replace it if it comes back"
_INFORMATION = _Code("information only", _NOTHING, is_fatal=False)

_CODES: dict[int, _Code] = {
    13: _Code("GPU exception in a kernel: illegal instruction or address", "fix the kernel it ran: "
              "compute-sanitizer; " + _RESTART, is_fatal=True),
    31: _Code("GPU memory page fault: a kernel used an address that is not its own", "fix the kernel it ran: "
              "compute-sanitizer; " + _RESTART, is_fatal=True),
    32: _Code("corrupted push buffer stream", _RESTART, is_fatal=True),
    43: _Code("the GPU stopped a process's work after that process's own fault", "look for the process's own error",
              is_fatal=True, is_echo=True),
    44: _Code("fault in a context switch", "look for the process's own error", is_fatal=True),
    45: _Code("a process's work was cleared away, after an earlier error or the process's end",
              "look for the error before it", is_fatal=False, is_echo=True),
    46: _Code("GPU stopped processing: time-out", _RESET, is_fatal=True),
    48: _Code("double-bit ECC error: memory that cannot be corrected", _DRAIN, is_fatal=True),
    61: _Code("internal micro-controller breakpoint", _RESET, is_fatal=True),
    62: _Code("internal micro-controller halt", _RESET, is_fatal=True),
    63: _Code("a memory row was remapped, or a page retired", "none now; reset the GPU at the next pause",
              is_fatal=False),
    64: _Code("remapping a memory row failed", _RESET, is_fatal=True),
    69: _Code("graphics engine class error", _RESTART, is_fatal=True),
    74: _Code("NVLink error", "check the link at both ends and reset both GPUs; repair if it comes back",
              is_fatal=True),
    79: _Code("the GPU has fallen off the bus", _REBOOT, is_fatal=True),
    80: _Code("corrupted data sent to the GPU", _RESTART, is_fatal=True),
    92: _Code("high rate of single-bit ECC errors", "none now: keep an eye on the GPU", is_fatal=False),
    94: _Code("contained ECC error: the application that used the memory is ended", _RESTART, is_fatal=True),
    95: _Code("uncontained ECC error", _RESET, is_fatal=True),
    109: _Code("context switch time-out", _RESET, is_fatal=True),
    110: _Code("security fault", _RESET, is_fatal=True),
    119: _Code("the GPU's system processor (GSP) does not answer", _RESET + "; often only a reboot helps",
               is_fatal=True),
    120: _Code("error in the GPU's system processor (GSP)", _RESET + "; often only a reboot helps", is_fatal=True),
    121: _Code("error of the link between the CPU and the GPU (C2C)", _SUPPORT, is_fatal=False),
    **dict.fromkeys((39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)), _COPY_ENGINE),
    **dict.fromkeys(range(122, 126), _Code("error of the GPU's own flash memory", _SUPPORT, is_fatal=False)),
    136: _Code("link training failed", _RESET, is_fatal=True),
    137: _Code("fault seen over NVLink, of an access to another GPU", "look for the other GPU's error",
               is_fatal=False, is_echo=True),
    140: _Code("ECC error that was not recovered", _RESET, is_fatal=True),
    143: _Code("the GPU could not be initialised", _RESET, is_fatal=True),
    **dict.fromkeys(range(144, 151), _Code("NVLink error", _NVLINK5, is_fatal=None)),
    151: _Code("key rotation error (confidential computing)", "restart the virtual machine", is_fatal=True),
    **dict.fromkeys((141, 152, 157, 160), _INFORMATION),
    154: _Code("the driver says what the GPU needs to recover", "do what the line says", is_fatal=False),
    155: _Code("NVLink error found by the driver", _RESET, is_fatal=True),
    156: _Code("a resource of the GPU was retired", _RESET, is_fatal=True),
    158: _Code("fatal time-out in the GPU", _RESET, is_fatal=True),
    167: _Code("fatal time-out on PCIe", _RESET, is_fatal=True),
    171: _Code("double-bit ECC error in the GPU's DRAM (detail of Xid 48)", _DRAIN, is_fatal=True),
    172: _Code("double-bit ECC error in the GPU's SRAM (detail of Xid 48)", _DRAIN, is_fatal=True),
}  # fmt: skip
_UNKNOWN = _Code("unknown", "look the code up in NVIDIA's Xid catalogue", is_fatal=False)
_FATAL_WORD = re.compile(r"\bFatal\b")


def xid_in(line: KernelLine) -> Xid | None:
    """The error of a GPU that a line reports. A code that is not in the table is kept, its meaning `unknown`."""
    found = _XID.match(line.words)
    if found is None:
        return None
    number, text = int(found["code"]), (found["text"] or "").strip()
    code, pid = _CODES.get(number, _UNKNOWN), found["pid"] or ""
    return Xid(
        code=number,
        bus_id=device_key(found["bus"]) or clean(found["bus"].lower()),
        pid=int(pid) if re.fullmatch(r"[0-9]{1,9}", pid) else None,
        text=clean(text, _MAX_TEXT),
        meaning=code.meaning,
        action=code.action,
        is_fatal=code.is_fatal if code.is_fatal is not None else _FATAL_WORD.search(text) is not None,
        is_echo=code.is_echo,
        **line.place(),
    )


def sxid_in(line: KernelLine) -> KernelFault | None:
    """The error of an NVSwitch; the lines of detail that follow it are left out."""
    found = _SXID.match(line.words)
    if found is None or _SXID_DETAIL.match(found["text"]):
        return None
    return KernelFault(
        kind="nvswitch",
        device=device_key(found["bus"]) or clean(found["bus"].lower()),
        pid=None,
        command="",
        is_fatal=found["severity"] == "Fatal",
        **line.place(),
    )
