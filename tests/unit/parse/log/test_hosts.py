"""Transcripts of ping, ssh, sinfo, scontrol, kubectl and ls."""

import pytest

from ncclprobe.model.log import DumpWritten, HostDown, LogEvent
from ncclprobe.parse.log.hosts import RECOGNIZER
from ncclprobe.parse.log.line import LogLine


def heard(*texts: str) -> list[LogEvent]:
    recognizer = RECOGNIZER()
    lines = [LogLine(number=number, text=text) for number, text in enumerate(texts, 1)]
    return [*(event for line in lines for event in recognizer.feed(line)), *recognizer.end()]


def down(*texts: str) -> list[str]:
    return [event.what.host for event in heard(*texts) if isinstance(event.what, HostDown)]


def test_ping() -> None:
    lines = [
        "--- node01 ping statistics ---", "3 packets transmitted, 3 received, 0% packet loss, time 2031ms",
        "rtt min/avg/max/mdev = 0.081/0.090/0.104/0.009 ms", "From 10.0.7.10 icmp_seq=1 Destination Host Unreachable",
        "--- node03 ping statistics ---", "3 packets transmitted, 0 received, +3 errors, 100% packet loss, time 2054ms",
    ]  # fmt: skip
    assert down(*lines) == ["node03"]
    unreachable = "From 10.0.7.10 icmp_seq=1 Destination Host Unreachable"
    assert down("PING node04 (10.0.7.14) 56(84) bytes of data.", unreachable,
                "--- node04 ping statistics ---", "3 packets transmitted, 0 received, 100% packet loss, time 1ms",
                ) == ["node04", "node04"]  # fmt: skip
    assert down("3 packets transmitted, 0 received, 100% packet loss, time 2054ms") == []


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("ssh: connect to host node03 port 22: No route to host", ["node03"]),
        ("node03: ssh: connect to host node03 port 22: Connection timed out", ["node03"]),
        ("ssh: connect to host node03 port 22: Connection refused", []),  # something there answered
        ("ssh: Could not resolve hostname node03: Name or service not known", []),
        ("Timeout, server node03 not responding.", ["node03"]),
        ("slurmctld: error: Nodes node[03-04] not responding, setting DOWN", ["node03", "node04"]),
        ("node03   NotReady   <none>   10d   v1.30.1", ["node03"]),
        ("node03   NotReady,SchedulingDisabled   <none>   10d   v1.30.1", ["node03"]),
        ("node03   Ready   <none>   10d   v1.30.1", []),
        ("Normal  NodeNotReady  5m  kubelet  Node node03 status is now: NodeNotReady", ["node03"]),
    ],
)
def test_single_lines(text: str, hosts: list[str]) -> None:
    assert down(text) == hosts


SINFO = {
    "NODELIST   NODES PARTITION STATE ": [
        "node01         1      gpu* alloc ",
        "node03         1      gpu* down* ",
        "node04         1      gpu* idle* ",
        "node05         1      gpu* drain ",
        "node06         1      gpu* mix+ ",
    ],
    "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST": [
        "gpu*         up   infinite      2  down* node[03-04]",
        "gpu*         up   infinite      9  alloc node[01-02,05-09]",
    ],
}


@pytest.mark.parametrize("head", SINFO)
def test_sinfo(head: str) -> None:
    assert down(head, *SINFO[head], "$ date") == ["node03", "node04"]
    assert down(*SINFO[head]) == []  # no columns are known


@pytest.mark.parametrize(
    ("state", "is_down"),
    [
        ("DOWN*+DRAIN", True),
        ("IDLE+NOT_RESPONDING", True),
        ("ALLOCATED*", True),
        ("ALLOCATED", False),
        ("IDLE+DRAIN", False),
    ],
)
def test_scontrol(state: str, is_down: bool) -> None:
    found = down("NodeName=node03 Arch=x86_64 CoresPerSocket=48", f"   State={state} ThreadsPerCore=1")
    assert found == (["node03"] if is_down else [])


def test_a_listing_of_dumps() -> None:
    events = heard(
        "$ ls -l /scratch/fr", "total 6348", "-rw-r--r-- 1 train train 2161494 Sep 14 06:19 comm_lib_trace_rank_0",
        "-rw-r--r-- 1 train train 0 Sep 14 06:19 comm_lib_trace_rank_1", "drwxr-xr-x 2 t t 4096 Sep 14 06:19 old",
        "-rw-r--r-- 1 train train 2.1M Sep 14 06:19 nccl_trace_rank_13",
        "-rw-r--r-- 1 t t 21 Sep 14 2025 notes_rank_3.txt",
    )  # fmt: skip
    dumps = [event.what for event in events if isinstance(event.what, DumpWritten)]
    assert [(dump.path, dump.rank) for dump in dumps] == [
        ("/scratch/fr/comm_lib_trace_rank_0", 0),
        ("/scratch/fr/nccl_trace_rank_13", 13),
    ]


def test_a_plain_listing() -> None:
    events = heard("$ ls", "nccl_trace_rank_0  nccl_trace_rank_1", "/fr/nccl_trace_rank_2", "see nccl_trace_rank_3")
    ranks = [event.what.rank for event in events if isinstance(event.what, DumpWritten)]
    assert ranks == [0, 1, 2]


def test_mpirun_loses_a_daemon() -> None:
    told = ["ORTE has lost communication with a remote daemon.", "", "  HNP daemon   : [[30521,0],0] on node node01"]
    assert down(*told, "  Remote daemon: [[30521,0],2] on node node03") == ["node03"]
