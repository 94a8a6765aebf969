"""A kernel log is told from a program's log that quotes the kernel."""

import json

import pytest

from ncclprobe.parse.kernel_head import is_kernel_log

XID = "NVRM: Xid (PCI:0000:9a:00): 79, pid=1, name=x, GPU has fallen off the bus."
LOGS = [
    "[  495.582151] Memory cgroup out of memory: Killed process 1 (x)",
    "<3>[  495.582151] something",
    "kern  :err   : [  495.582151] something",
    "3,1234,495582151,-;something",
    "[Sun Nov  9 16:39:46 2026] something",
    "[Nov29 16:39] something\n[  +0.000022] more",
    "2026-11-29T16:39:46,582151+00:00 something",
    "Nov 29 16:39:46 node1 kernel: something",
    "2026-11-29T16:39:46+0000 node1 kernel: something",
    "Nov 29 16:39:46 node1 systemd[1]: Started.\nNov 29 16:39:46 node1 kernel: [  4.0] a\nNov 29 16:39:47 node1 sshd: ",
    "-- Journal begins at Mon 2026-11-02 --\nNov 29 16:39:46 node1 kernel: something",
    "node02: [  495.582151] something\nnode03: [  495.582151] something",
    f"$ dmesg -t | grep NVRM\n{XID}\n",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=x,pid=1,uid=0\nOut of memory: Killed process 1 (x)",
    json.dumps({"dmesg": [{"pri": 6, "time": 1.5, "msg": "x"}]}, indent=3),
    '{"__REALTIME_TIMESTAMP":"1795951186582151","_TRANSPORT":"kernel","MESSAGE":"x"}',
]
OTHERS = [
    "",
    "\n\n",
    "hello",
    "\0[  495.582151] something",
    "[rank0]: step 1\n" * 40 + f"[  495.582151] {XID}\n",
    "[rank0]: step 1\n[rank0]: step 2\n[rank0]: step 3\n" + XID,
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=4211.0. Some of the step tasks have been OOM Killed.",
    "Nov 29 16:39:46 node1 python3[7]: [rank0]:[E129 16:39:46 ProcessGroupNCCL.cpp:632] Watchdog caught",
    "[2026-11-29 16:39:46,123] [INFO] [launch.py:1] starting",
    "2026-11-29T16:39:46,123 INFO train: loss 1.0",
    '{"__REALTIME_TIMESTAMP":"1795951186582151","_TRANSPORT":"stdout","MESSAGE":"x"}',
    '{"driver": "550", "gpus": []}',
]


@pytest.mark.parametrize("head", LOGS)
def test_a_kernel_log(head: str) -> None:
    assert is_kernel_log(head.encode())


@pytest.mark.parametrize("head", OTHERS)
def test_none(head: str) -> None:
    assert not is_kernel_log(head.encode())
