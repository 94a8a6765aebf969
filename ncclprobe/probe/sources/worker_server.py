"""Flight recorders of running ranks whose program runs torch's worker server or debug server.

In: the ranks' environment and threads, which must show one. Out: one JSON dump per rank and recorder, without frames.

`TORCH_WORKER_SERVER_SOCKET` names a socket in the file system (torch.distributed.elastic.control_plane, 2.4 and later).
`torch.distributed.debug.start_debug_server` (2.10 and later) starts a server in each rank, on a TCP port of all
addresses that nothing names: a rank's ports are tried only if it has a thread of such a server, and never the job's own
store. The server's web pages on port 25999 ask the same servers, and of NCCL's recorder for the pending calls only.
The handlers used here need no interpreter lock and go on in threads of the server's own.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.model.job import JobProcess
from ncclprobe.probe import handlers, proc
from ncclprobe.probe.dump_files import asked_already
from ncclprobe.probe.inside import connect_inside
from ncclprobe.probe.listeners import connect_to, open_ports
from ncclprobe.probe.recorders import with_entries
from ncclprobe.probe.source import Context, Disturbance, Found, Source

SOCKET_VARIABLE = "TORCH_WORKER_SERVER_SOCKET"
RECORDERS = ("dump_nccl_trace_json", "fr_trace_json")
_SERVER_THREAD = "pt_workerserver"  # torch 2.13; the kernel keeps 15 characters of a name
_RANK_S, _CONNECT_S = 5.0, 1.0
_AT_ONCE, _MAX_PORTS = 8, 8
_ACTION = "the other evidence stays; --live-dump asks in another way"

_connecting = threading.Lock()  # to connect, the process takes the user of a rank, and can be only one at a time
_Connect = Callable[[], socket.socket]


def collect(context: Context) -> Iterator[Found | Gap]:
    """Ranks that have not answered through their pipe, at once."""
    done = asked_already(context)
    jobs = []
    for process in context.ranks:
        environ = proc.environ(process.pid) or {}
        has_server = environ.get(SOCKET_VARIABLE) or _SERVER_THREAD in proc.thread_names(process.pid)
        if process.rank not in done and has_server:
            jobs.append((process, environ))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for answers in pool.map(lambda job: list(_ask(*job)), jobs):
            yield from answers


def _ask(process: JobProcess, environ: Mapping[str, str]) -> Iterator[Found | Gap]:
    start_ns, deadline = time.time_ns(), time.monotonic() + _RANK_S
    try:
        place, connect, known = _find(process.pid, environ, deadline)
        dumps = {name: handlers.call(connect(), name, deadline) for name in RECORDERS if name in known}
        if not dumps:
            raise OSError("it has no handler for the flight recorder, as before torch 2.6")
    except OSError as error:
        why = f"its worker server: {error.strerror or error}"
        yield Gap(who=f"rank {process.rank}", what="no dump from the worker server", why=why[:300], action=_ACTION)
        return
    for name, data in with_entries(dumps).items():
        yield Found(
            file=f"rank{process.rank}.{name}.json",
            kind=Kind.FLIGHT_RECORDER,
            origin=f"POST /handler/{name} at {place}",
            data=data,
            rank=process.rank,
            pid=process.pid,
            start_ns=start_ns,
            end_ns=time.time_ns(),
        )


def _find(pid: int, environ: Mapping[str, str], deadline: float) -> tuple[str, _Connect, set[str]]:
    """Where it listens, how to get there, and its handlers; OSError when it does not."""
    path = environ.get(SOCKET_VARIABLE)
    if path:
        connect = partial(_connect_to_socket, pid, path)
        return path, connect, handlers.names(connect(), deadline)
    problem = OSError("it listens on no port of all addresses")
    for port in [port for port in open_ports(pid) if str(port) != environ.get("MASTER_PORT")][:_MAX_PORTS]:
        connect = partial(_connect_to_port, pid, port)
        try:
            limit = min(deadline, time.monotonic() + _CONNECT_S)
            return f"port {port}", connect, handlers.names(connect(), limit)
        except OSError as error:
            problem = error
    raise problem


def _connect_to_port(pid: int, port: int) -> socket.socket:
    with _connecting:
        return connect_to(pid, port, _CONNECT_S)


def _connect_to_socket(pid: int, path: str) -> socket.socket:
    """OSError when it is another process's: ranks of one environment name the same, and the last has it."""
    with _connecting:
        connection = connect_inside(pid, path, _CONNECT_S)
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    owner = struct.unpack("3i", credentials)[0]
    if owner != pid:
        connection.close()
        raise OSError(f"the socket {path} is that of process {owner}")
    return connection


SOURCE = Source(name="worker_server", disturbs=Disturbance.NOTHING, collect=collect, wave=3)
