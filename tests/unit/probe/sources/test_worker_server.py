"""torch's worker server: the real one with gloo, stand-ins for NCCL builds and for servers that are sick."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.parse import flight_recorder
from ncclprobe.probe import handlers
from ncclprobe.probe.source import Collected
from ncclprobe.probe.sources import worker_server
from ncclprobe.probe.sources.worker_server import SOURCE
from tests.unit.probe.processes import running
from tests.unit.probe.sources.context import collect, context, process

# A rank as worker_main starts it, or with torch's debug server and its web pages.
TORCH = """
import os, socket, time, torch
import torch.distributed as dist
def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
os.environ["MASTER_PORT"] = str(free_port())
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(3))
if "TORCH_WORKER_SERVER_SOCKET" in os.environ:
    from torch._C._distributed_c10d import _WorkerServer
    server = _WorkerServer(os.environ["TORCH_WORKER_SERVER_SOCKET"])
else:
    from torch.distributed.debug import start_debug_server
    start_debug_server(port=free_port())
print("ready", flush=True)
time.sleep(600)
"""
RANK = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
# What tells a worker server, in a process that has none of torch.
THREAD = """
import ctypes, threading
def serve():
    ctypes.CDLL(None).prctl(15, b"pt_workerserver", 0, 0, 0)  # PR_SET_NAME
    threading.Event().wait()
threading.Thread(target=serve, daemon=True).start()
"""
# Handlers of a CUDA build, from a process of its own: it must be the rank's.
STAND_IN = """
import http.server, json
DUMPS = {"dump_nccl_trace_json": {"version": "2.10", "entries": [{"profiling_name": "nccl:all_reduce"}]},
         "fr_trace_json": {"version": "2.10"}}
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, document, status=200):
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def do_GET(self):
        self.answer(["ping", *DUMPS], 200 if self.path == "/handler/" else 404)
    def do_POST(self):
        name = self.path.rpartition("/")[2]
        self.answer(DUMPS.get(name, "unknown"), 200 if name in DUMPS else 404)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler)
print("ready", flush=True)
server.serve_forever()
"""
SILENT = """
import socket, time
listener = socket.create_server(("0.0.0.0", 0))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("way", ["debug server", "socket"])
def test_the_real_server_gives_the_recorder_of_gloo(stack: ExitStack, tmp_path: Path, way: str) -> None:
    socket_of_it = {"TORCH_WORKER_SERVER_SOCKET": str(tmp_path / "socket")} if way == "socket" else {}
    pid = stack.enter_context(running(TORCH, environ=RANK | socket_of_it))
    (item,), gaps = collect(SOURCE, context(process(pid, 0)))
    assert not gaps
    assert (item.file, item.rank, item.pid) == ("rank0.fr_trace_json.json", 0, pid)
    (recording,) = flight_recorder.parse(item.data).records
    assert "gloo:all_reduce" in item.data.decode()
    assert recording.calls


def test_of_two_recorders_the_one_with_entries(stack: ExitStack) -> None:
    pid = stack.enter_context(running(THREAD + STAND_IN))
    (item,), gaps = collect(SOURCE, context(process(pid, 0)))
    assert not gaps
    assert item.file == "rank0.dump_nccl_trace_json.json"


def test_a_rank_without_a_thread_of_a_worker_server_is_never_connected_to(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("connected")

    monkeypatch.setattr(worker_server, "connect_to", fail)
    pid = stack.enter_context(running(STAND_IN))
    assert collect(SOURCE, context(process(pid, 0))) == ([], [])


def test_a_rank_that_has_answered_through_its_pipe_is_not_asked_again(stack: ExitStack) -> None:
    pid = stack.enter_context(running(THREAD + STAND_IN))
    artifact = Artifact(path="dump_pipe/x", kind=Kind.FLIGHT_RECORDER, host="node1", origin="/d0", rank=0, pid=pid)
    earlier = (Collected(artifact=artifact, spool=Path("/none")),)
    assert collect(SOURCE, context(process(pid, 0), earlier=earlier)) == ([], [])


def test_one_that_does_not_answer_is_a_gap_in_time(stack: ExitStack) -> None:
    pids = [stack.enter_context(running(THREAD + SILENT)) for _ in range(3)]
    begin = time.monotonic()
    found, gaps = collect(SOURCE, context(*(process(pid, rank) for rank, pid in enumerate(pids))))
    assert not found
    assert [gap.who for gap in gaps] == ["rank 0", "rank 1", "rank 2"]
    assert time.monotonic() - begin < 3


def test_a_socket_of_another_process_is_not_taken_for_the_ranks(stack: ExitStack, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(path)
    listener.listen()
    pid = stack.enter_context(running(environ={"TORCH_WORKER_SERVER_SOCKET": path}))
    found, (gap,) = collect(SOURCE, context(process(pid, 0)))
    assert not found
    assert "is that of process" in gap.why


# What a sick server sends


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """A connection to something that answers so."""
    ours, theirs = socket.socketpair()

    def run() -> None:
        with theirs, suppress(OSError):
            theirs.recv(4_096)
            answer(theirs)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ours
    finally:
        ours.close()
        thread.join()


def dribble(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"H")
        time.sleep(0.05)


def flood(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65_536)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (dribble, "not answer in time"),
        (flood, "longer than"),
        (lambda one: one.sendall(b"\0\1\2 no http\n\n"), "not HTTP"),
        (lambda one: one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort"), "cut off"),
        (lambda one: one.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "404"),
        (lambda one: None, "not HTTP"),
    ],
    ids=["one byte at a time", "without end", "no HTTP", "cut off", "not found", "nothing"],
)
def test_a_sick_server_is_an_error_within_the_deadline(
    answer: Callable[[socket.socket], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "LIMIT_BYTES", 1 << 20)
    begin = time.monotonic()
    with serving(answer) as connection, pytest.raises(OSError, match=says):
        handlers.call(connection, "fr_trace_json", begin + 0.5)
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize("body", [b"[1]", b"{}", b"[[[", b"<html>"])
def test_what_lists_no_handlers_is_no_worker_server(body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with serving(lambda one: one.sendall(head + body)) as connection, pytest.raises(OSError, match="worker server"):
        handlers.names(connection, time.monotonic() + 1)
