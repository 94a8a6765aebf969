"""What the kernel says of crashes, hung tasks, storage, links, PCIe and lost GPUs."""

import pytest

from ncclprobe.model.kernel import KernelFault
from ncclprobe.parse.kernel_log import parse

FATAL, MINOR = True, False
LINES = [
    # kind, device, pid, command, is it fatal, words
    ("hung-task", "", 4117, "python3", FATAL, "INFO: task python3:4117 blocked for more than 120 seconds."),
    ("hung-task", "", 567, "kworker/u32:1", FATAL, "INFO: task kworker/u32:1:567 blocked for more than 241 seconds."),
    ("hung-task", "", 7, "a b", FATAL, "INFO: task a b:7 blocked in I/O wait for more than 122 seconds."),
    ("lockup", "CPU#3", 77, "python3", FATAL, "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:77]"),
    ("lockup", "CPU#3", 77, "python3", FATAL, "NMI watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:77]"),
    ("lockup", "cpu 5", None, "", FATAL, "watchdog: CPU5: Watchdog detected hard LOCKUP on cpu 5"),
    ("lockup", "rcu_sched", None, "", FATAL, "rcu: INFO: rcu_sched self-detected stall on CPU"),
    ("lockup", "rcu_preempt", None, "", FATAL, "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"),
    ("segfault", "libcuda.so.550.54", 9, "python3", FATAL,
     "python3[9]: segfault at 18 ip 00007f9c3f2a sp 00007ffe5 error 4 in libcuda.so.550.54[7f9c3f000000+1000]"),
    ("segfault", "", 9, "pt main", FATAL, "pt main[9]: segfault at 0 ip 00007f9c3f2a sp 00007ffe5 error 14"),
    ("segfault", "libc.so.6", 9, "python3", FATAL,
     "traps: python3[9] general protection fault ip:7f3c sp:7ffe error:0 in libc.so.6[7f3c+1000]"),
    ("segfault", "libx.so", 9, "python3", FATAL,
     "traps: python3[9] trap invalid opcode ip:7f3c sp:7ffe error:0 in libx.so[7f3c+1000]"),
    ("segfault", "", 9, "python3", FATAL,
     "python3[9]: unhandled level 2 translation fault (11) at 0x00000008, esr 0x92000006"),
    ("segfault", "", 9, "python3", FATAL, "python3/9: potentially unexpected fatal signal 11."),
    ("segfault", "", 9, "python3", FATAL,
     "Memory failure: 0x1a2b: Killing python3:9 due to hardware memory corruption"),
    ("kernel-bug", "", None, "", FATAL, "Kernel panic - not syncing: Fatal exception"),
    ("kernel-bug", "", None, "", FATAL, "BUG: unable to handle page fault for address: ffffb"),
    ("storage", "10.0.0.9", None, "", FATAL, "nfs: server 10.0.0.9 not responding, still trying"),
    ("storage", "filer1", None, "", FATAL, "nfs: server filer1 not responding, timed out"),
    ("storage", "filer1", None, "", MINOR, "nfs: server filer1 OK"),
    ("storage", "fs1-OST0003", None, "", FATAL,
     "Lustre: fs1-OST0003-osc-ffff88: Connection to fs1-OST0003 (at 10.0.0.4@o2ib) was lost; in progress operations"),
    ("storage", "fs1-OST0003", None, "", MINOR,
     "Lustre: fs1-OST0003-osc-ffff88: Connection restored to fs1-OST0003 (at 10.0.0.4@o2ib)"),
    ("storage", "fs1-MDT0000", None, "", FATAL,
     "LustreError: 167-0: fs1-MDT0000-mdc-ffff: This client was evicted by fs1-MDT0000; in progress operations fail"),
    ("storage", "", None, "", MINOR, "LustreError: 11-0: fs1-OST0003: operation ost_write failed: rc = -107"),
    ("storage", "osd12", None, "", MINOR, "libceph: osd12 (1)10.0.0.1:6801 socket closed (con state OPEN)"),
    ("storage", r"\\filer2", None, "", FATAL,
     r"CIFS: VFS: \\filer2 has not responded in 180 seconds. Reconnecting..."),
    ("storage", "nvme1n1p1", None, "", FATAL, "EXT4-fs (nvme1n1p1): Remounting filesystem read-only"),
    ("storage", "dm-0", None, "", FATAL, "XFS (dm-0): Filesystem has been shut down due to log error (0x2)."),
    ("storage", "dm-0-8", None, "", FATAL, "Aborting journal on device dm-0-8."),
    ("storage", "nvme0", None, "", MINOR, "nvme nvme0: I/O 12 QID 3 timeout, aborting"),
    ("storage", "nvme0", None, "", MINOR,
     "nvme nvme0: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 3 timeout, aborting req_op:READ(0) size:4096"),
    ("storage", "nvme0", None, "", FATAL, "nvme nvme0: Disabling device after reset failure: -19"),
    ("storage", "sda1", None, "", MINOR, "Buffer I/O error on dev sda1, logical block 0, lost async page write"),
    ("storage", "nvme0n1", None, "", MINOR, "blk_update_request: I/O error, dev nvme0n1, sector 123 op 0x0:(READ)"),
    ("storage", "nvme0n1", None, "", MINOR, "critical medium error, dev nvme0n1, sector 123 op 0x0:(READ)"),
    ("link-down", "eth2", None, "", FATAL, "mlx5_core 0000:5e:00.0 eth2: Link down"),
    ("link-down", "0000:5e:00.1", None, "", FATAL, "mlx5_core 0000:5E:00.1: Link down"),
    ("link-up", "ens1f0np0", None, "", MINOR, "mlx5_core 0000:5e:00.0 ens1f0np0: Link up"),
    ("link-down", "ens1", None, "", FATAL, "bnxt_en 0000:01:00.0 ens1: NIC Link is Down"),
    ("link-down", "eno1", None, "", FATAL, "igb 0000:03:00.0 eno1: igb: eno1 NIC Link is Down"),
    ("link-up", "ens1", None, "", MINOR, "ice 0000:ca:00.0 ens1: NIC Link is up 100 Gbps Full Duplex"),
    ("link-down", "eth0", None, "", FATAL, "bond0: (slave eth0): link status definitely down, disabling slave"),
    ("port", "0000:5e:00.0", None, "", FATAL, "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged"),
    ("port", "0000:5e:00.0", None, "", MINOR, "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable plugged"),
    ("port", "0000:5e:00.0", None, "", FATAL,
     "mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, High Temperature"),
    ("port", "0000:5e:00.0", None, "", FATAL,
     "mlx5_core 0000:5e:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count"),
    ("port", "0000:5e:00.0", None, "", MINOR,
     "mlx5_core 0000:5e:00.0: mlx5_pcie_event:299:(pid 1): Detected insufficient power on the PCIe slot (27W)."),
    ("port", "0000:5e:00.0", None, "", MINOR,
     "mlx5_core 0000:5e:00.0: mlx5_cmd_out_err:801:(pid 9): ACCESS_REG(0x805) op_mod(0x1) failed, status bad"),
    ("pcie-fatal", "0000:9a:00.0", None, "", FATAL,
     "pcieport 0000:99:01.0: AER: Uncorrected (Fatal) error received: 0000:9a:00.0"),
    ("pcie-fatal", "0000:9a:00.0", None, "", FATAL,
     "pcieport 0000:99:01.0: AER: Multiple Uncorrectable (Fatal) error message received from 0000:9a:00.0"),
    ("pcie-uncorrected", "0000:9a:00.0", None, "", MINOR,
     "pcieport 0000:99:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:9a:00.0"),
    ("pcie-corrected", "0000:99:01.0", None, "", MINOR,
     "pcieport 0000:99:01.0: AER: Corrected error received: id=00e8"),
    ("pcie-corrected", "0000:18:00.0", None, "", MINOR,
     "nvidia 0000:18:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"),
    ("pcie-fatal", "0000:18:00.0", None, "", FATAL,
     "nvidia 0000:18:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer"),
    ("pcie-fatal", "0000:97:01.0", None, "", FATAL,
     "pcieport 0000:97:01.0: DPC: containment event, status:0x1f01 source:0x0000"),
    ("pcie-fatal", "0000:97:01.0", None, "", FATAL, "pcieport 0000:97:01.0: pciehp: Slot(3): Link Down"),
    ("gpu-lost", "0000:2b:00.0", None, "", FATAL, "NVRM: GPU 0000:2b:00.0: GPU has fallen off the bus."),
    ("gpu-lost", "", None, "", FATAL, "NVRM: fallen off the bus and is not responding to commands."),
    ("gpu-lost", "0000:2b:00.0", None, "", FATAL, "NVRM: GPU 0000:2b:00.0: RmInitAdapter failed! (0x62:0x55:2477)"),
    ("gpu-lost", "0000:03:00.0", None, "", FATAL, "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "device", "pid", "command", "is_fatal", "words"), LINES, ids=[line[-1][:60] for line in LINES]
)
def test_wordings(kind: str, device: str, pid: int | None, command: str, is_fatal: bool, words: str) -> None:
    (fault,) = parse(f"quiet\n[ 1.000000] {words}\n".encode()).records
    assert isinstance(fault, KernelFault)
    assert (fault.kind, fault.device, fault.pid, fault.command) == (kind, device, pid, command)
    assert (fault.is_fatal, fault.line, fault.quote) == (is_fatal, 2, f"[ 1.000000] {words}"[:200])


@pytest.mark.parametrize(
    "words",
    [
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 510",
        "nvidia 0000:18:00.0: enabling device (0000 -> 0002)",
        "NVRM: GPU at PCI:0000:9a:00: GPU-51c0aa1e-1f0a-7711-90bb-3fe09a77c211",
        "EXT4-fs (nvme1n1p1): mounted filesystem with ordered data mode. Opts: (null)",
        "pcieport 0000:97:01.0: AER: enabled with IRQ 42",
        "nvme nvme0: 64/0/0 default/read/poll queues",
        "INFO: task python3:4117 is blocked on a mutex likely owned by task python3:4118.",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=4211.0",
    ],
)
def test_lines_that_say_nothing(words: str) -> None:
    assert parse(f"[ 1.000000] {words}\n".encode()).records == ()


def test_other_programs_cannot_speak_for_the_kernel() -> None:
    lines = [f"Nov 29 16:39:46 node1 train[7]: {words}" for *_, words in LINES]
    assert parse("\n".join(lines).encode()).records == ()


def test_of_a_million_corrected_errors_the_first_and_the_last_are_kept_for_each_device() -> None:
    words = "pcieport 0000:17:01.0: AER: Corrected error received: 0000:18:00."
    lines = [f"[ {second}.000000] {words}{second % 2}\n" for second in range(1000)]
    assert [event.line for event in parse("".join(lines).encode()).records] == [1, 2, 999, 1000]


def test_a_server_that_comes_back_is_told_apart_from_one_that_does_not() -> None:
    words = ("not responding, still trying", "OK", "not responding, still trying")
    events = parse("\n".join(f"[ 1.000000] nfs: server f1 {word}" for word in words).encode()).records
    assert [(event.line, event.is_fatal) for event in events if isinstance(event, KernelFault)] == [
        (1, True),
        (2, False),
        (3, True),
    ]
