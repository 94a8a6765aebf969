"""Lines of torch's stores and connections."""

# ruff: noqa: E501  (lines of logs stay whole)

from typing import Any

import pytest

from ncclprobe.model.log import (
    Failure,
    LogEvent,
    PeerLost,
    Raised,
    SetupError,
    StoreTimeout,
    StoreUnreachable,
    StoreWait,
)
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.torch_start import TorchStart

SOCKET = "SocketImpl(fd=97, addr=[node02]:50827, remote=[node01]:45903)"


def told(text: str, rank: "int | None" = None) -> list[LogEvent]:
    return list(TorchStart().feed(LogLine(number=1, text=text, rank=rank)))


def facts(text: str) -> list[Any]:
    return [event.what for event in told(text)]


@pytest.mark.parametrize(
    ("release", "text", "wait"),
    [
        (
            "1.13",
            (
                "INFO:torch.distributed.distributed_c10d:Waiting in store based barrier to initialize process group for rank:"
                " 0, key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)"
            ),
            StoreWait(rank=0, world_size=8, joined=7),
        ),
        (
            "2.1 and later",
            (
                "Waiting in store based barrier to initialize process group for rank: 3, key: store_based_barrier_key:1"
                " (world_size=8, num_workers_joined=7, timeout=0:10:00)"
            ),
            StoreWait(rank=3, world_size=8, joined=7),
        ),
        (
            "given up",
            (
                "RuntimeError: Timed out initializing process group in store based barrier on rank: 2, for key:"
                " store_based_barrier_key:1 (world_size=2, worker_count=4, timeout=0:30:00)"
            ),
            StoreWait(rank=2, world_size=2, joined=4, has_timed_out=True),
        ),
        (
            "joined",
            "INFO:torch.distributed.distributed_c10d:Added key: store_based_barrier_key:1 to store for rank: 5",
            StoreWait(rank=5, world_size=None, joined=None),
        ),
    ],
)
def test_the_barrier_of_start_up(release: str, text: str, wait: StoreWait) -> None:
    assert [(event.what, event.rank) for event in told(text)] == [(wait, wait.rank)], release


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("The client socket has timed out after 60000ms while trying to connect to (localhost, 29500).", "localhost:29500"),
        ("[c10d] The client socket has failed to connect to [node01]:29500 (errno: 111 - Connection refused).", "node01:29500"),
        ("The client socket has failed to connect to any network address of (10.0.0.1, 29500).", "10.0.0.1:29500"),
        (
            ("[c10d] TCP client failed to connect/validate to host localhost:29500 - timed out (try=9, timeout=60000ms): The"
            " client socket has timed out after 60000ms while trying to connect to (localhost, 29500)."),
            "localhost:29500",
        ),
        ("The IPv4 network addresses of (node09, 29500) cannot be retrieved (gai error: -2 - unknown).", "node09:29500"),
        ("RuntimeError: connect() timed out. Original timeout was 1800000 ms.", ""),
    ],
)  # fmt: skip
def test_stores_that_cannot_be_reached(text: str, address: str) -> None:
    (fact,) = facts(text)
    assert isinstance(fact, StoreUnreachable)
    assert fact.address == address
    assert fact.reason


@pytest.mark.parametrize(
    "text",
    [
        (
            "[W socket.cpp:663] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign"
            " requested address)."
        ),
        "[W socket.cpp:663] [c10d] The IPv6 network addresses of (node01, 29500) cannot be retrieved (gai error: -2 - x).",
    ],
)
def test_the_other_address_family_is_tried_next(text: str) -> None:
    assert not facts(text)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("wait timeout after 300000ms, keys: /default_pg/0//cuda//0", StoreTimeout(key="/default_pg/0//cuda//0", timeout_ms=300000)),
        (
            ("DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value"
            " store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0"),
            StoreTimeout(key="/default_pg/0//cuda//0", timeout_ms=600000),
        ),
        (
            ("[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0',"
            " but store->get('0') got error: Socket Timeout"),
            StoreTimeout(key="0"),
        ),
        (
            ("retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection"
            " reset by peer"),
            PeerLost(reason="Connection reset by peer", is_store=True),
        ),
        (f"[c10d] waitForInput: socket {SOCKET} timed out after 600000ms", StoreTimeout(key="", timeout_ms=600000)),
        (f"[c10d] waitForInput: poll for socket {SOCKET} returned 0, likely a timeout", StoreTimeout(key="")),
        (
            f"[c10d] sendBytes failed on {SOCKET}: Broken pipe",
            PeerLost(peer="node01:45903", reason="Broken pipe", is_store=True),
        ),
        (
            f"[c10d] recvValue failed on {SOCKET}: Connection was likely closed. Did the remote server shutdown or crash?",
            PeerLost(
                peer="node01:45903",
                reason="Connection was likely closed. Did the remote server shutdown or crash?",
                is_store=True,
            ),
        ),
        (
            ('[PG ID 0 PG GUID 0 Rank 7] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut'
            " down too early), with error: Broken pipe"),
            PeerLost(reason="Broken pipe", is_store=True),
        ),
        (
            ("[a/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:21408. This is typically caused by a"
            " remote worker crashing."),
            PeerLost(peer="127.0.0.1:21408", reason="Connection closed by peer"),
        ),
        (
            "[a/gloo/transport/tcp/pair.cc:589] Read error [10.0.0.1]:2140: Connection reset by peer",
            PeerLost(peer="10.0.0.1:2140", reason="Read error: Connection reset by peer"),
        ),
        (
            "[a/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 90000ms for recv operation to complete",
            Raised(
                exception="RuntimeError",
                message="Timed out waiting 90000ms for recv operation to complete",
                failure=Failure.COLLECTIVE_ECHO,
            ),
        ),
        ("Gloo connectFullMesh failed with [a]", SetupError(text="Gloo connectFullMesh failed with [a]")),
        (
            "The server socket has failed to listen on any local network address. port: 29500",
            SetupError(text="The server socket has failed to listen on any local network address"),
        ),
    ],
)  # fmt: skip
def test_stores_and_peers(text: str, fact: Any) -> None:
    assert facts(text) == [fact]


@pytest.mark.parametrize("text", ["a socket wrench", "error [5]", "wait timeout after lunch", "SocketImpl("])
def test_other_words(text: str) -> None:
    assert not facts(text)


def test_the_store_counts_its_clients() -> None:
    (event,) = told("DistStoreError: Timed out after 601 seconds waiting for clients. 8/16 clients joined.")
    assert event.rank == 0
    assert event.what == StoreWait(rank=0, world_size=16, joined=8, has_timed_out=True)


def test_a_warning_of_nccl_that_torch_repeats() -> None:
    (fact,) = facts("Duplicate GPU detected : rank 2 and rank 3 both on CUDA device 50000")
    assert isinstance(fact, SetupError)
    assert fact.ranks == (2, 3)
