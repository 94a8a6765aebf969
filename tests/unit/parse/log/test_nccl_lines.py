"""NCCL's lines of every version, alone and written into one another."""

import pytest

from ncclprobe.model.log import (
    CommEvent,
    Failure,
    LogEvent,
    NcclWarning,
    NetworkError,
    PeerLost,
    PortError,
    Raised,
    Setting,
    SetupError,
)
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.nccl_lines import MAX_OF_A_KIND, NEEDLES, RECOGNIZER

INFO = "node01:4120:4388 [0] NCCL INFO "
WARN = "node01:4120:4388 [0] transport/net_ib.cc:1888 NCCL WARN "
COMM = "comm 0x55d142ccc8 rank 3 nranks 16 cudaDev 1"

PEER = "NET/IB: Got completion from peer 10.0.2.13<37001>"
GIDS = " localGid fe80::e2:1 remoteGidsfe80::c3:1 hca mlx5_1"


def heard(*texts: str) -> list[LogEvent]:
    recognizer = RECOGNIZER()
    events = [
        event for number, text in enumerate(texts, 1) for event in recognizer.feed(LogLine(number=number, text=text))
    ]
    return [*events, *recognizer.end()]


def only(text: str) -> LogEvent:
    (event,) = heard(text)
    assert any(needle in text for needle in NEEDLES)
    return event


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # 2.10 to 2.15
        (f"{COMM} busId 9b000 - Init COMPLETE", {"event": "init-complete", "bus_id": "0000:9b:00.0"}),
        # 2.16
        (f"{COMM} busId 9b000 commId 0x2f1be0aa81c4d7e3 - Init COMPLETE", {"comm_id": "0x2f1be0aa81c4d7e3"}),
        # 2.18 to 2.20
        (f"{COMM} nvmlDev 5 busId 18000 commId 0x0abc - Init START", {"event": "init-start", "comm_id": "0xabc"}),
        # 2.21 and 2.22
        (f"ncclCommInitRank {COMM} nvmlDev 1 busId 18000 commId 0x1 - Init COMPLETE", {"comm_id": "0x1"}),
        (
            f"ncclCommSplit {COMM} nvmlDev 1 busId 18000 parent 0x55aa color 2 key 3 commId 0x9 - Init START",
            {"parent": "0x55aa", "color": 2, "split": None, "comm_id": "0x9"},
        ),
        # 2.23: no commId, and no blank before the dash
        (
            f"ncclCommSplit {COMM} nvmlDev 1 busId 18000 parent 0x55aa color -1 key 3- Init START",
            {"parent": "0x55aa", "color": -1, "comm_id": None, "event": "init-start"},
        ),
        # 2.24 to 2.28
        (
            f"ncclCommSplit {COMM} nvmlDev 1 busId 18000 parent 0x55aa splitCount 4 color 2 key 3 - Init COMPLETE",
            {"parent": "0x55aa", "color": 2, "split": 4, "event": "init-complete"},
        ),
        # 2.29 and later
        (
            f"[Rank 3] ncclCommGrow {COMM} nvmlDev 1 busId 18000 parent 0x55aa childCount 1 color 0 key 3- Init START",
            {"parent": "0x55aa", "split": 1, "color": 0, "event": "init-start"},
        ),
        (f"{COMM} busId 18000 - Destroy COMPLETE", {"event": "destroy-complete"}),
        (f"{COMM} busId 18000 - Abort COMPLETE", {"event": "abort-complete"}),
        # 2.28 writes nRanks
        (f"{COMM.replace('nranks', 'nRanks')} busId 18000 - Abort START", {"event": "abort-start", "size": 16}),
        # 2.30
        (f"{COMM} busId 18000 - Revoke COMPLETE, result 0", {"event": "revoke"}),
        # RCCL
        (f"{COMM} busId c000 commId 0x7 localSize 224 used 9 bytes - Init COMPLETE", {"bus_id": "0000:0c:00.0"}),
        (f"{COMM} busId 1000018000 commId 0x7 - Init COMPLETE", {"bus_id": "10000:18:00.0"}),
    ],
)
def test_a_communicators_life_in_every_version(line: str, expected: dict[str, object]) -> None:
    event = only(INFO + line)
    assert isinstance(event.what, CommEvent)
    assert (event.host, event.pid, event.rank) == ("node01", 4120, None)
    assert (event.what.comm, event.what.rank, event.what.size) == ("0x55d142ccc8", 3, 16)
    assert event.what.cuda_device == 1
    assert {name: getattr(event.what, name) for name in expected} == expected


def test_a_communicator_that_is_only_described_is_no_event() -> None:
    assert heard(f"{INFO}{COMM.replace('nranks', 'nRanks')} nNodes 4 localRanks 1 localRank 0 MNNVL 0") == []


@pytest.mark.parametrize(
    ("message", "status", "is_echo"),
    [
        # to 2.20
        (
            "NET/IB : Got completion from peer 10.0.2.13<37001> with error 12, opcode 0, len 0, vendor err 129",
            12,
            False,
        ),
        ("NET/IB : Got completion from peer 10.0.2.13<37001> with error 5, opcode 0, len 0, vendor err 249", 5, True),
        # 2.21 to 2.27
        (
            f"{PEER} with status=12 opcode=129 len=0 vendor err 129 (Send){GIDS}",
            12,
            False,
        ),
        # 2.28 and later, with the name, the number, or both
        (
            f"{PEER} with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 {GIDS}",
            12,
            False,
        ),
        ("NET/IB: Got completion from peer 10.0.2.13<37001> with status=IBV_WC_WR_FLUSH_ERR opcode=x", 5, True),
        ("NET/IBP: Got completion from peer 10.0.2.13<37001> with status=IBV_WC_NEW_ERR opcode=x", None, False),
    ],
)
def test_completion_errors(message: str, status: int | None, is_echo: bool) -> None:
    fact = only(WARN + message).what
    assert isinstance(fact, NetworkError)
    assert (fact.peer, fact.status, fact.is_echo) == ("10.0.2.13", status, is_echo)
    if "hca" in message:
        assert (fact.device, fact.local_address, fact.remote_address) == ("mlx5_1", "fe80::e2:1", "fe80::c3:1")


@pytest.mark.parametrize(
    ("message", "kind", "fields"),
    [
        # sockets
        (
            "socketProgress: Connection closed by remote peer node2.lan<42830>",
            NetworkError,
            {"peer": "node2.lan", "is_echo": True},
        ),
        ("Net : Connection closed by remote peer", NetworkError, {"peer": "", "is_echo": True}),
        (
            "socketProgress: Call to recv from 10.0.7.13<41720> failed : Connection timed out",
            NetworkError,
            {"peer": "10.0.7.13", "is_echo": False},
        ),
        (
            "socketProgressOpt: Call to recv from fd00::1<5000> failed : Connection reset by peer",
            NetworkError,
            {"peer": "fd00::1", "is_echo": True},
        ),
        (
            "socketPollConnect: connect to 10.8.1.9<378> returned Connection refused, exceeded error retry count (9)",
            NetworkError,
            {"peer": "10.8.1.9", "is_echo": False},
        ),
        (
            "socketPollConnect: connect returned Connection refused, exceeded error retry count (35)",
            NetworkError,
            {"peer": ""},
        ),
        (
            "socketStartConnect: Connect to 10.0.0.2<45763> failed : Software caused connection abort",
            NetworkError,
            {"peer": "10.0.0.2"},
        ),
        (
            "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_2:1, curr state INIT",
            NetworkError,
            {"device": "mlx5_2:1"},
        ),
        # ports
        ("NET/IB : mlx5_0:1 Got async event : port error", PortError, {"device": "mlx5_0:1"}),
        ("NET/IB : Got async event : port error", PortError, {"device": ""}),
        ("NET/IB : mlx5_0:1 Got non-fatal async event: port error(10)", PortError, {"device": "mlx5_0:1"}),
        ("NET/IB : mlx5_0:1 async fatal event: local catastrophic error", PortError, {"device": "mlx5_0:1"}),
        (
            "NET/IB : mlx5_0:1 async fatal event on QP 0x7f: local work queue catastrophic error",
            NetworkError,
            {"device": "mlx5_0:1"},
        ),
        ("NET/IB : mlx5_0:1 Got async event : port active", NcclWarning, {}),
        ("NET/IB : mlx5_0:1 Got non-fatal async event: GID table changed(18)", NcclWarning, {}),
        # peers
        (
            "[Service thread] Error encountered progressing operation=Connect, res=3, closing connection",
            PeerLost,
            {"local_rank": None},
        ),
        ("[Service thread] Could not receive type from localRank 5, res=3, closed=0", PeerLost, {"local_rank": 5}),
        (
            "[Proxy Service 11] Failed to execute operation Connect from rank 11, retcode 2",
            PeerLost,
            {"local_rank": None},
        ),
        ("Socket recv failed while polling for opId=0x7f6f18cb7f40", PeerLost, {}),
        # set-up
        ("Mismatched NCCL version detected : rank 0 version 22005 rank 2 version 21903", SetupError, {"ranks": (0, 2)}),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 9b000", SetupError, {"ranks": (1, 0)}),
        ("Bootstrap Root : mismatch in info from procs, nranks 8 vs 4", SetupError, {"ranks": ()}),
        ("Bootstrap Root : rank 3 of 8 ranks has already checked in", SetupError, {"ranks": (3,)}),
        ("ncclSocketInit: connecting to address with family 0 is neither AF_INET(2) nor AF_INET6(10)", SetupError, {}),
        ("Bootstrap : no socket interface found", SetupError, {}),
        ("NET/Socket : No interface found in the same subnet as 10.0.0.1<0>", SetupError, {}),
        # CUDA
        ("Cuda failure 'an illegal memory access was encountered'", Raised, {"failure": Failure.GPU_ERROR}),
        ("Cuda failure 719 'unspecified launch failure'", Raised, {"failure": Failure.GPU_ERROR}),
        ("Cuda failure 2 'out of memory'", Raised, {"failure": Failure.GPU_MEMORY}),
        ("Cuda failure 'uncorrectable ECC error encountered'", Raised, {"failure": Failure.GPU_FAULT}),
        ("nvmlDeviceGetHandleByPciBusId() failed: GPU is lost", Raised, {"failure": Failure.GPU_FAULT}),
        ("Cuda failure 'driver shutting down'", NcclWarning, {}),
        # the rest
        (
            "NET/Plugin: Could not find libnccl-net.so",
            NcclWarning,
            {"text": "NET/Plugin: Could not find libnccl-net.so"},
        ),
        ("Message truncated : received 1024 bytes instead of 256", NcclWarning, {}),
    ],
)
def test_warnings(message: str, kind: type, fields: dict[str, object]) -> None:
    event = only(WARN + message)
    assert type(event.what) is kind
    assert {name: getattr(event.what, name) for name in fields} == fields
    assert (event.host, event.pid) == ("node01", 4120)


def test_a_peer_of_the_same_host_that_is_gone() -> None:
    event = only(f"{INFO}[Service thread] Connection closed by localRank 6")
    assert event.what == PeerLost(local_rank=6, reason="[Service thread] Connection closed by localRank 6")


@pytest.mark.parametrize(
    ("prefix", "when_ns"),
    [
        ("node01:4120:4388 [-1] init.cc:5 NCCL WARN ", None),
        ("[2026-11-02 21:30:11] node01:4120:4388 [1] net_ib.cc:1888 NCCL WARN ", 1_793_655_011_000_000_000),
        ("[2026-11-02 21:30:11.25] node01:4120:4388 [1] net_ib.cc:1888 NCCL WARN ", 1_793_655_011_250_000_000),
        ("[2026-11-02 21:30:11] node01:4120:4388 [1] init.cc:5 (ncclIbTest) NCCL WARN ", 1_793_655_011_000_000_000),
    ],
)
def test_prefixes_of_warnings(prefix: str, when_ns: int | None) -> None:
    event = only(f"{prefix}Something new")
    assert event.what == NcclWarning(text="Something new")
    assert (event.host, event.pid, event.when_ns) == ("node01", 4120, when_ns)


def test_the_time_of_the_line_counts_where_nccl_prints_none() -> None:
    line = LogLine(number=7, text=f"{INFO}{COMM} busId 18000 - Abort COMPLETE", when_ns=5, rank=3)
    (event,) = RECOGNIZER().feed(line)
    assert (event.line, event.when_ns, event.rank) == (7, 5, 3)


@pytest.mark.parametrize(
    ("line", "setting"),
    [
        (f"{INFO}NCCL version 2.27.3+cuda12.9", Setting(name="nccl", value="2.27.3")),
        (
            f"{INFO}NCCL_SOCKET_IFNAME set by environment to eth0,^docker",
            Setting(name="NCCL_SOCKET_IFNAME", value="eth0,^docker"),
        ),
        (f"{INFO}NCCL_IB_FIFO_TC set by environment to 224.", Setting(name="NCCL_IB_FIFO_TC", value="224")),
        (f"{INFO}cudaDriverVersion 12040", Setting(name="cuda_driver", value="12.4")),
        (f"{INFO}cudaDriverVersion 13000", Setting(name="cuda_driver", value="13.0")),
        (f"{INFO}Using network IB", Setting(name="network", value="IB")),
        (f"{INFO}Bootstrap : Using eth0:10.0.0.1<0>", Setting(name="address", value="eth0 10.0.0.1")),
        (f"{INFO}Bootstrap: Using ib0:fe80::1%ib0<0>", Setting(name="address", value="ib0 fe80::1%ib0")),
        (f"{INFO}NET/Socket : Using [0]ens5:10.0.0.1<0>", Setting(name="address", value="ens5 10.0.0.1")),
        (
            f"{INFO}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
            Setting(name="address", value="eth0 10.0.0.1"),
        ),
    ],
)
def test_settings(line: str, setting: Setting) -> None:
    event = only(line)
    assert event.what == setting
    assert event.host == "node01"
    assert len(heard(line, line)) == 1


VERSION = "NCCL version 2.21.5+cuda12.4"


def test_a_bare_version_belongs_to_the_host_around_it() -> None:
    driver = f"{INFO}cudaDriverVersion 12040"
    for lines in ((driver, VERSION), (VERSION, driver), (VERSION, VERSION, driver)):
        (event,) = (event for event in heard(*lines) if event.what == Setting(name="nccl", value="2.21.5"))
        assert (event.host, event.pid) == ("node01", None)


def test_a_bare_version_with_nobody_around() -> None:
    (event,) = heard(VERSION)
    assert (event.what, event.host) == (Setting(name="nccl", value="2.21.5"), None)


def test_a_line_far_away_is_no_neighbour() -> None:
    recognizer = RECOGNIZER()
    assert list(recognizer.feed(LogLine(number=1, text=VERSION))) == []
    events = list(recognizer.feed(LogLine(number=900, text=f"{INFO}cudaDriverVersion 12040")))
    assert [event.host for event in events] == [None, "node01"]


def test_of_a_backtrace_only_the_first_line() -> None:
    trace = ["bootstrap.cc:271 -> 3", "init.cc:1270 -> 3", "group.cc:64 -> 3 [Async thread]"]
    events = heard(*(INFO + line for line in trace), f"{WARN}Something", *(INFO + line for line in trace))
    assert [event.what for event in events] == [
        NcclWarning(text=trace[0]),
        NcclWarning(text="Something"),
        NcclWarning(text=trace[0]),
    ]


def test_backtraces_of_two_threads_do_not_mix() -> None:
    other = INFO.replace("4388", "4399")
    assert len(heard(f"{INFO}a.cc:1 -> 3", f"{other}a.cc:1 -> 3", f"{INFO}b.cc:1 -> 3", f"{other}b.cc:1 -> 3")) == 2


def test_messages_written_into_one_another() -> None:
    line = (
        f"step 12 {INFO}comm 0x55 rank 0 nranks 2 cudaDev 0 busId 18000 - Init COMPLETE"
        "node02:77:78 [1] NCCL INFO comm 0x66 rank 1 nranks 2 cudaDev 1 busId 2a000 - Init COMPLETE"
    )
    assert [(event.host, event.pid, event.what.rank) for event in heard(line) if isinstance(event.what, CommEvent)] == [
        ("node01", 4120, 0),
        ("node02", 77, 1),
    ]


def test_a_host_glued_to_what_stands_before_it_is_told_by_those_seen_before() -> None:
    events = heard(f"{INFO}cudaDriverVersion 12040", f"stream 0x55a1ad06b6{INFO}Using network IB")
    assert [event.host for event in events] == ["node01", "node01"]


def test_a_flood_of_errors_is_cut() -> None:
    flood = [f"{WARN}NET/IB : Got completion from peer 10.0.0.1<1> with error 5, opcode {n}" for n in range(300)]
    assert len(heard(*flood)) == MAX_OF_A_KIND


@pytest.mark.parametrize(
    "text",
    ["", "NCCL INFO", "NCCL WARN no prefix", "see train.cc:12 for NCCL", f"{INFO}Channel 00/02 : 0 1", "x" * 9_000],
)
def test_lines_that_tell_nothing(text: str) -> None:
    assert heard(text) == []


def test_text_from_the_log_is_fit_to_show() -> None:
    event = only(f"{WARN}bad \x1b[2J text")
    assert isinstance(event.what, NcclWarning)
    assert "\x1b" not in event.what.text
    assert "\x1b" not in event.quote
