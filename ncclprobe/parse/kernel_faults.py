"""What else the kernel says that can explain a stopped rank: crashes, hung tasks, storage, links, PCIe, lost GPUs.

In: lines of the kernel's log. Out: `KernelFault`s. The rules are a table; the first that matches a line decides.
"""

import re
from typing import NamedTuple

from ncclprobe.model.bus_id import device_key
from ncclprobe.model.kernel import KernelFault
from ncclprobe.parse.kernel_lines import KernelLine
from ncclprobe.parse.text import clean

_MAX_NAME = 128


class _Rule(NamedTuple):
    """`needles`: one of them is in every line that `words` can match. Its groups: `device`, `pid`, `command`."""

    kind: str
    is_fatal: bool
    needles: tuple[str, ...]
    words: re.Pattern[str]


def _rule(kind: str, needles: "str | tuple[str, ...]", words: str, *, is_fatal: bool) -> _Rule:
    wanted = (needles,) if isinstance(needles, str) else needles
    return _Rule(kind, is_fatal, wanted, re.compile(words, re.DOTALL))


_BDF = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
# A command has 15 characters at most (TASK_COMM_LEN), a kernel thread's name a few more; it may hold blanks.
_TASK = r"(?P<command>.{1,64}?)"
_PID = r"(?P<pid>\d{1,9})"
_PROGRAM = r"(?P<command>[^\[\]]{1,32}?)"  # not `node1 train[7]: python3`, where another program speaks
# `mlx5_core 0000:5e:00.0 eth2: `: the interface only once it has been given a name.
_NIC = rf"[\w-]{{1,32}} (?P<device>{_BDF})(?: (?P<interface>[\w.@-]{{1,32}}))?(?: \([^)]{{0,80}}\))?: (?:\w{{1,16}}: )?"
_AER = rf"[\w-]{{1,32}} (?P<reporter>{_BDF}): "
_AER_FROM = rf"(?: message)? received(?: from|:) (?P<device>{_BDF}|id=\w{{1,16}})?"

_PROCESSES = (
    _rule("hung-task", " blocked ", rf"INFO: task {_TASK}:{_PID} (?:<\w+> )?blocked (?:in I/O wait )?for "
          r"more than \d{1,9} seconds", is_fatal=True),
    _rule("lockup", "soft lockup", r"(?:NMI )?(?:watchdog: )?BUG: soft lockup - (?P<device>CPU#\d{1,5}) stuck for "
          rf"\d{{1,9}}s! \[{_TASK}:{_PID}\]", is_fatal=True),
    _rule("lockup", "hard LOCKUP", r"(?:NMI )?watchdog: (?:CPU\d{1,5}: )?Watchdog detected hard LOCKUP on "
          r"(?P<device>cpu \d{1,5})", is_fatal=True),
    _rule("lockup", "detected stall", r"(?:rcu: )?INFO: (?P<device>rcu_\w{1,16}) (?:self-)?detected (?:expedited )?"
          r"stall", is_fatal=True),
    _rule("lockup", "workqueue lockup", r"BUG: workqueue lockup - (?P<device>pool)", is_fatal=False),
    _rule("segfault", "segfault at", rf"(?:show_signal_msg: |traps: )?{_PROGRAM}\[{_PID}\]: segfault at [0-9a-fx]+ ip "
          r"[0-9a-fx]+ sp [0-9a-fx]+ error \w{1,8}(?: in (?P<device>[^\s\[]{1,200})\[)?", is_fatal=True),
    _rule("segfault", "traps: ", rf"traps: {_PROGRAM}\[{_PID}\] (?:general protection|trap |\w[\w ]{{0,40}} ip:)"
          r".{0,200}?(?: in (?P<device>[^\s\[]{1,200})\[|$)", is_fatal=True),
    _rule("segfault", "unhandled ", rf"{_PROGRAM}\[{_PID}\]: unhandled (?:exception|\w[\w ]{{0,40}} fault)"
          r".{0,200}?(?: in (?P<device>[^\s\[]{1,200})\[|$)", is_fatal=True),
    _rule("segfault", "unexpected fatal signal", rf"(?:{_PROGRAM}/{_PID}: )?potentially unexpected fatal signal \d",
          is_fatal=True),
    _rule("segfault", "hardware memory corruption", rf"(?:Memory failure|MCE): .{{0,40}}?Killing {_TASK}:{_PID} due to "
          r"hardware memory corruption", is_fatal=True),
    _rule("kernel-bug", "Kernel panic", r"Kernel panic - not syncing", is_fatal=True),
    _rule("kernel-bug", ("BUG: unable to handle", "kernel BUG at", "Oops: ", "general protection fault, "),
          r"(?:BUG: unable to handle |kernel BUG at |(?:Internal error: )?Oops: |general protection fault, )",
          is_fatal=True),
)  # fmt: skip
_STORAGE = (
    _rule("storage", "nfs: server", r"nfs: server (?P<device>\S{1,253}) not responding", is_fatal=True),
    _rule("storage", "nfs: server", r"nfs: server (?P<device>\S{1,253}) OK", is_fatal=False),
    _rule("storage", "failed on NFSv4 server", r"NFS: .{0,160}? failed on NFSv4 server (?P<device>\S{1,253}) with "
          r"error", is_fatal=False),
    _rule("storage", "Connection to ", r"Lustre: .{0,300}?: Connection to (?P<device>\S{1,128}).{0,200}? was lost",
          is_fatal=True),
    _rule("storage", "Connection restored to ", r"Lustre: .{0,300}?: Connection restored to (?P<device>[^\s,(]{1,128})",
          is_fatal=False),
    _rule("storage", "client was evicted by", r"LustreError: .{0,300}?client was evicted by (?P<device>[^\s;,]{1,128})",
          is_fatal=True),
    _rule("storage", "LustreError", r"LustreError: ", is_fatal=False),
    _rule("storage", "ceph: ", r"(?:ceph|libceph): .{0,100}?(?P<device>(?:mds|mon|osd)\d{1,6})\b.{0,160}?(?:hung|"
          r"session lost|socket closed|socket error|timeout| down$)", is_fatal=False),
    _rule("storage", "has not responded in", r"CIFS: .{0,40}?(?P<device>\\\\\S{1,253}) has not responded in",
          is_fatal=True),
    _rule("storage", "emounting filesystem read-only", r"[\w-]{1,16}.{0,8}\((?:device )?(?P<device>[\w!/-]{1,64})\)?"
          r".{0,120}?[Rr]emounting filesystem read-only", is_fatal=True),
    _rule("storage", ("has been shut down", "Shutting down filesystem", "hutdown due to"), r"XFS \((?P<device>[\w!/-]"
          r"{1,64})\): .{0,200}?(?:has been shut down|Shutting down filesystem|shutdown due to)", is_fatal=True),
    _rule("storage", "Aborting journal on device", r"Aborting journal on device (?P<device>[\w!/-]{1,64})",
          is_fatal=True),
    _rule("storage", ("Disabling device after reset", "Removing after probe failure", "Device not ready; abort"),
          r"nvme (?P<device>nvme\d{1,4}): (?:Disabling device|Removing after probe|Device not ready)", is_fatal=True),
    _rule("storage", (" QID ", "controller is down"), r"nvme (?P<device>nvme\d{1,4}): (?:I/O .{0,160}?timeout|"
          r"controller is down)", is_fatal=False),
    _rule("storage", "Buffer I/O error on dev", r"Buffer I/O error on dev(?:ice)? (?P<device>[\w!/-]{1,64})",
          is_fatal=False),
    _rule("storage", " error, dev ", r"(?:blk_update_request: |print_req_error: )?(?:I/O|critical \w{1,16}|\w{1,16}) "
          r"error, dev (?P<device>[\w!/-]{1,64})", is_fatal=False),
    _rule("storage", ("EXT4-fs error", "I/O error", "I/O Error"), r"(?:EXT4-fs error \(device |XFS \()"
          r"(?P<device>[\w!/-]{1,64})\): ", is_fatal=False),
)  # fmt: skip
_NETWORK = (
    _rule("link-down", ("Link down", "Link is Down", "Link is down"), rf"{_NIC}(?:\S{{1,32}} )?(?:NIC )?Link (?:is )?"
          r"[Dd]own", is_fatal=True),
    _rule("link-up", ("Link up", "Link is Up", "Link is up"), rf"{_NIC}(?:\S{{1,32}} )?(?:NIC )?Link (?:is )?[Uu]p",
          is_fatal=False),
    _rule("link-down", "link status definitely down", r"bond\S{0,16}: \(slave (?P<device>[^)]{1,32})\): link status "
          r"definitely down", is_fatal=True),
    _rule("link-up", "link status definitely up", r"bond\S{0,16}: \(slave (?P<device>[^)]{1,32})\): link status "
          r"definitely up", is_fatal=False),
    _rule("link-up", "link becomes ready", r"IPv6: ADDRCONF\(\w{1,32}\): (?P<device>[\w.@-]{1,32}): link becomes ready",
          is_fatal=False),
    _rule("port", "Cable ", rf"{_NIC}Port module event.{{0,40}}?, Cable (?:unplugged|error)", is_fatal=True),
    _rule("port", "Cable ", rf"{_NIC}Port module event.{{0,40}}?, Cable ", is_fatal=False),
    _rule("port", ("health compromised", "Will cause a leak of a command", "Fatal error"), rf"{_NIC}.{{0,80}}?(?:"
          r"health compromised|Will cause a leak of a command|Fatal error)", is_fatal=True),
    _rule("port", ("Detected insufficient power", "ACCESS_REG"), rf"{_NIC}.{{0,120}}?(?:Detected insufficient power|"
          r"ACCESS_REG.{0,80}? failed)", is_fatal=False),
    _rule("port", "NETDEV WATCHDOG", r"NETDEV WATCHDOG: (?P<device>[\w.@-]{1,32}) \([^)]{1,40}\): transmit queue",
          is_fatal=False),
)  # fmt: skip
_FATAL, _NONFATAL = (rf"Uncorrect(?:ed|able) \({how}\)" for how in ("Fatal", "Non-Fatal"))
_CORRECTED = r"Correct(?:ed|able)"
_PCIE = (
    *(
        rule
        for kind, words, is_fatal in (
            ("pcie-fatal", _FATAL, True), ("pcie-uncorrected", _NONFATAL, False), ("pcie-corrected", _CORRECTED, False),
        )
        for rule in (
            _rule(kind, "AER: ", rf"{_AER}AER: (?:Multiple )?{words} error{_AER_FROM}", is_fatal=is_fatal),
            _rule(kind, "PCIe Bus Error: ", rf"{_AER}(?:AER: )?PCIe Bus Error: severity={words}", is_fatal=is_fatal),
        )
    ),
    _rule("pcie-fatal", "AER: device recovery failed", rf"{_AER}AER: device recovery failed", is_fatal=True),
    _rule("pcie-fatal", "DPC: ", rf"{_AER}DPC: (?:containment event|unmasked uncorrectable|ERR_FATAL)", is_fatal=True),
    _rule("pcie-fatal", ": pciehp: ", rf"{_AER}pciehp: Slot\(.{{1,16}}?\): (?:Link Down|Card not present)",
          is_fatal=True),
)  # fmt: skip
_GPUS = (
    _rule("gpu-lost", "fallen off the bus", rf"NVRM: .{{0,40}}?(?P<device>{_BDF}).{{0,160}}?fallen off the bus",
          is_fatal=True),
    _rule("gpu-lost", "fallen off the bus", r"NVRM: fallen off the bus", is_fatal=True),  # the device a line before
    _rule("gpu-lost", "RmInitAdapter failed", rf"NVRM: GPU (?P<device>{_BDF}): RmInitAdapter failed", is_fatal=True),
    _rule("gpu-lost", "amdgpu", rf"amdgpu (?P<device>{_BDF}): (?:amdgpu: )?(?:\[drm[^\]]{{0,40}}\] )?\*?.{{0,40}}?"
          r"(?:GPU reset begin|device lost from bus|ring \S{1,32} timeout|uncorrectable hardware error)",
          is_fatal=True),
)  # fmt: skip

_RULES = tuple(
    (needle, rule) for rule in (*_GPUS, *_PCIE, *_NETWORK, *_PROCESSES, *_STORAGE) for needle in rule.needles
)
NEEDLES = tuple(sorted({needle for needle, _ in _RULES}))


def fault_in(line: KernelLine) -> KernelFault | None:
    """What the line tells, if it is of any of the kinds."""
    for needle, rule in _RULES:
        if needle in line.words and (found := rule.words.match(line.words)):
            return _fault(rule, line, found.groupdict())
    return None


def _fault(rule: _Rule, line: KernelLine, groups: dict[str, str | None]) -> KernelFault:
    pid = groups.get("pid")
    return KernelFault(
        kind=rule.kind,
        device=_device(groups),
        pid=int(pid) if pid else None,
        command=clean(groups.get("command") or "", 64),
        is_fatal=rule.is_fatal,
        **line.place(),
    )


def _device(groups: dict[str, str | None]) -> str:
    """The interface where it has a name; of a PCIe error whom it came from, else who reports it."""
    device = groups.get("device") or ""
    if device.startswith("id="):  # Linux 4 gives the sender as a number
        device = ""
    name = groups.get("interface") or device or groups.get("reporter") or ""
    return clean(device_key(name) or name, _MAX_NAME) if ":" in name else clean(name, _MAX_NAME)
