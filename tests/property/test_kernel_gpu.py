"""Kernel logs, GPU state and port state, damaged in every way: sound records or a reason, soon."""

import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncclprobe.model.errors import ParseError
from ncclprobe.model.gpu import GpuLook
from ncclprobe.model.kernel import KernelFault, OomKill, Xid
from ncclprobe.parse import gpu, kernel_head, kernel_log, nic
from ncclprobe.parse.parsed import Parsed
from tests.mutations import mutated

KERNEL = b"""[    1.500000] rtc_cmos 00:01: setting system clock to 2026-11-29T11:19:46 UTC (1795951186)
[  495.582129] oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/a/b,task=python3,pid=13944,uid=0
[  495.582151] Memory cgroup out of memory: Killed process 13944 (python3) total-vm:3238kB, anon-rss:306176kB
2026-03-03T19:59:58,781301+00:00 NVRM: Xid (PCI:0000:9a:00): 79, pid='<unknown>', name=<unknown>, GPU is lost
2026-03-03T20:10:03,511020+00:00 NVRM: Xid (PCI:0000:5d:00): 45, pid=60303, name=python3, Ch 00000008
[Sun Nov 29 16:39:46 2026] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
Nov 29 16:39:46 node-1 kernel: [  495.5] INFO: task python3:4117 blocked for more than 120 seconds.
node02: [  495.5] pcieport 0000:99:01.0: AER: Uncorrected (Fatal) error received: 0000:9a:00.0
3,1234,495582151,-;mlx5_core 0000:5e:00.0 eth2: Link down
kern  :err   : [  495.582151] python3[9]: segfault at 18 ip 00007f9c sp 00007ffe error 4 in libcuda.so[7f9c+1000]
"""
ENTRY = b'{"__REALTIME_TIMESTAMP":"1795951186582151","_TRANSPORT":"kernel","_HOSTNAME":"n","MESSAGE":"%s"}\n'
JOURNAL = ENTRY % b"NVRM: Xid (PCI:0000:9a:00): 79, pid=1, name=x" + ENTRY % b"nfs: server f1 not responding, timed out"
DMESG = (
    b'{"dmesg": [{"pri":2,"time":495.582151,"msg":"NVRM: Xid (PCI:0000:9a:00): 31, pid=1, name=x, MMU \\u001b[2J"}]}'
)
XML = b"""<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd"><nvidia_smi_log>
<timestamp>Sun Nov 29 11:19:46 2026</timestamp><attached_gpus>1</attached_gpus><gpu id="00000000:18:00.0">
<product_name>H100</product_name><utilization><gpu_util>100 %</gpu_util></utilization>
<gpu_power_readings><power_draw>152.10 W</power_draw></gpu_power_readings>
<processes><process_info><pid>4117</pid></process_info></processes></gpu></nvidia_smi_log>"""
CSV = b"""timestamp, host, index, pci.bus_id, utilization.gpu [%], power.draw [W], clocks_event_reasons.active
2026/11/29 11:19:46.100, node01, 0, 0000000F:01:00.0, 100 %, 71.30 W, 0x0000000000000009
2026/11/29 11:19:47.100, node01, 0, 0000000F:01:00.0, [N/A], [GPU is lost], 0x0000000000000009
"""
TABLE = b"""ann@node01:~$ nvidia-smi
Sun Nov 29 11:19:46 2026
|   0  NVIDIA H100 80GB HBM3          On  | 00000000:18:00.0 Off |                    0 |
| N/A   35C    P0             152W / 700W |  71234MiB / 81559MiB |    100%      Default |
|    0   N/A  N/A      4117      C   python                                    71224MiB |
Unable to determine the device handle for GPU 0000:9A:00.0: Unknown Error
"""
DMON = b"""# gpu    pwr  gtemp     sm    mem   mclk   pclk
# Idx      W      C      %      %    MHz    MHz
    0    152     35    100      0   2619   1980
"""
PORTS = (
    b'{"ports": [{"device": "mlx5_0", "port": 1, "state": "4: ACTIVE", "rate": "400 Gb/sec", "counters": {"a": 1}}]}'
)
IBSTAT = b"""CA 'mlx5_0'
	Port 1:
		State: Active
		Physical state: LinkUp
		Rate: 400
2: eth0: <BROADCAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT
    RX:  bytes packets errors dropped  missed   mcast
        123456     789      3       2       1       0
/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:3
"""
SEEDS: dict[Callable[[bytes], Parsed[Any]], list[bytes]] = {
    kernel_log.parse: [KERNEL, JOURNAL, DMESG],
    gpu.parse: [XML, CSV, TABLE, DMON],
    nic.parse: [PORTS, IBSTAT],
}
PARSERS = pytest.mark.parametrize("parser", SEEDS, ids=lambda parser: parser.__module__.rpartition(".")[2])
SECONDS = 3.0


def check(parser: Callable[[bytes], Parsed[Any]], data: bytes) -> Parsed[Any] | None:
    started = time.process_time()
    try:
        parsed = parser(data)
    except ParseError as error:
        check_values(str(error))
        return None
    finally:
        assert time.process_time() - started < SECONDS
    check_values(parsed)
    for record in parsed.records:
        if isinstance(record, GpuLook):
            assert record.util_percent is None or record.util_percent >= 0
            assert record.bus_id is None or len(record.bus_id) >= 12
        if isinstance(record, (OomKill, Xid, KernelFault)):
            assert 1 <= record.line <= data.count(b"\n") + 1
    return parsed


def check_values(value: object) -> None:
    """All text is fit to show."""
    if isinstance(value, str):
        value.encode()
        assert not any(character < " " or "\x7f" <= character < "\xa0" for character in value), value
    elif isinstance(value, dict):
        check_values([*value, *value.values()])
    elif isinstance(value, (tuple, list)):
        for part in value:
            check_values(part)
    elif is_dataclass(value):
        for field in fields(value):
            check_values(getattr(value, field.name))


def is_told(data: bytes) -> tuple[bool, bool, bool]:
    return kernel_head.is_kernel_log(data), gpu.is_gpu(data), nic.is_nic(data)


@PARSERS
def test_the_seeds_are_read(parser: Callable[[bytes], Parsed[Any]]) -> None:
    place = list(SEEDS).index(parser)
    for seed in SEEDS[parser]:
        parsed = check(parser, seed)
        assert parsed is not None
        assert parsed.records
        assert parsed.problems == ()
        assert is_told(seed) == tuple(number == place for number in range(3))


@PARSERS
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_damaged_files(parser: Callable[[bytes], Parsed[Any]], data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from(SEEDS[parser]))
    damaged = mutated(seed, data.draw(st.randoms(use_true_random=False)))
    check(parser, damaged)
    is_told(damaged)


@PARSERS
@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=300))
def test_any_bytes(parser: Callable[[bytes], Parsed[Any]], data: bytes) -> None:
    check(parser, data)
    is_told(data)


@PARSERS
def test_every_cut(parser: Callable[[bytes], Parsed[Any]]) -> None:
    for seed in SEEDS[parser]:
        for end in range(0, len(seed), max(1, len(seed) // 100)):
            check(parser, seed[:end])


@PARSERS
def test_a_line_without_an_end(parser: Callable[[bytes], Parsed[Any]]) -> None:
    """Pieces that make a careless pattern go back and forth."""
    for seed in SEEDS[parser]:
        for line in seed.splitlines():
            for piece in (line[: len(line) // 2], line[-8:], b" ", b"a: ", b"0", b"(", b"| ", b"<", b'"'):
                check(parser, line + piece * 20_000)
                check(parser, (line + b"\n") * 200 + piece * 5_000)


def test_a_large_log_of_nothing_is_read_soon() -> None:
    quiet = b"[51200.630795] perf: interrupt took too long (2500 > 2500), lowering sample_rate to 79000\n" * 200_000
    started = time.process_time()
    assert len(kernel_log.parse(quiet + KERNEL).records) == 8
    assert time.process_time() - started < SECONDS
