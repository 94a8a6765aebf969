"""What torch prints of its stores and connections: at start-up, and when the other side is gone.

In: lines. Out: who waits for whom at start-up, unreachable stores, keys nobody set, lost peers.
"""

import re
from collections.abc import Callable, Iterator

from ncclprobe.model.log import (
    Failure,
    LogEvent,
    OpTrace,
    PeerLost,
    Raised,
    SetupError,
    StoreTimeout,
    StoreUnreachable,
    StoreWait,
)
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.nccl_warnings import fact_of_warning
from ncclprobe.parse.log.torch_terms import whole
from ncclprobe.parse.text import clean

_MAX_REASON = 200

# --- the store-based barrier of start-up (Python) ---
_BARRIER = re.compile(
    r"(?P<how>Waiting in|Timed out initializing process group in) store based barrier"
    r"(?: to initialize process group)?(?: (?:for|on) rank: ?(?P<rank>\d{1,7}))?"
)
_WORLD = re.compile(r"world_size=(\d{1,7})")
_JOINED = re.compile(r"(?:worker_count|num_workers_joined)=(\d{1,7})")
_CLIENTS = re.compile(r"\b(\d{1,7})/(\d{1,7}) clients joined")
_ADDED = re.compile(r"Added key: store_based_barrier_key:\S+ to store for rank: (\d{1,7})")

# --- connecting ---
_CONNECT = re.compile(
    r"The (?:client|server) socket (?P<reason>has timed out after \d+ ?(?:ms|s)|has failed to connect to|timed out)"
)
_PAIR = re.compile(r"\((?P<host>[^\s(),]{1,255}), (?P<port>\d{1,5})\)")
_BRACKET = re.compile(r"\[(?P<host>[^\s\[\]]{1,255})\]:(?P<port>\d{1,5})")
_CLIENT = re.compile(
    r"failed to connect/validate to host (?P<host>\S{1,255}?):(?P<port>\d{1,5}) - (?P<reason>[^(]{0,80})"
)
_ERRNO = re.compile(r"errno: (\d+) - ([^).]{1,80})")
_UNRESOLVED = re.compile(
    r"network addresses of \((?P<host>[^\s,]{1,255}), (?P<port>\d{1,5})\) cannot be retrieved(?P<reason>[^.]{0,80})"
)
_OLD_CONNECT = re.compile(r"connect\(\) timed out\. Original timeout was (\d+) ms")
_LISTEN = re.compile(r"The server socket has failed to (?:listen|bind)[^.]{0,200}|Address already in use")
# An address family that a host does not have; the next one is tried at once. Address not available, no such family.
_HARMLESS_ERRNOS = ("97", "99")

# --- waiting for a key, and losing the store ---
_WAIT = re.compile(r"wait timeout after (?P<ms>\d{1,12}) ?ms(?:, keys: (?P<keys>[^\n]{1,400}))?")
_GET = re.compile(r"by key '(?P<key>[^']{0,200})', but store->get\('[^']*'\) got error: (?P<error>[^\n]{0,200})")
_POLL = re.compile(
    r"waitForInput: .{0,20}?socket SocketImpl\([^()]*\) "
    r"(?:timed out after (?P<ms>\d{1,12}) ?ms|returned 0, likely a timeout)"
)
_STORE_LOST = re.compile(
    r"(?:sendBytes|recvValue\w*|recvBytes|recvVector\w*|recvString|sendVector\w*) failed on SocketImpl"
    r"\((?P<socket>[^()]*)\): (?P<reason>[^\n]{1,100})"
)
_REMOTE = re.compile(r"remote=\[(?P<host>[^\]]*)\]:(?P<port>\d+)")
_SHOULD_DUMP = re.compile(
    r"Failed to check the \"should dump\" flag on TCPStore.*?(?:with error: (?P<reason>.{0,100}))?$"
)

# --- gloo ---
_CLOSED = re.compile(
    r"(?P<reason>Connection closed by peer|(?:Read|Write|Connect) error|Connect(?:ion)? timeout) "
    r"\[(?P<host>[^\]]{1,100})\]:(?P<port>\d{1,5})(?P<more>: [^.\n]{1,60})?"
)
_GLOO_WAIT = re.compile(r"Timed out waiting (\d{1,12})ms for (?:recv|send) operation to complete")
_FULL_MESH = re.compile(r"Gloo connectFullMesh failed[^\n]{0,200}")

Facts = Iterator[LogEvent]


def _quoted(line: LogLine) -> Facts:
    """The words in which torch repeats a warning of NCCL, behind `Last error:`."""
    fact = fact_of_warning(line.text) if " NCCL " not in line.text else None
    if isinstance(fact, SetupError):
        yield line.event(fact)


def _barrier(line: LogLine) -> Facts:
    found = _BARRIER.search(line.text)
    rank = whole(found["rank"]) if found and found["rank"] else line.rank
    if found and rank is not None:
        world, joined = _WORLD.search(line.text), _JOINED.search(line.text)
        wait = StoreWait(
            rank=rank,
            world_size=int(world[1]) if world else None,
            joined=int(joined[1]) if joined else None,
            has_timed_out=found["how"].startswith("Timed"),
        )
        yield line.event(wait, rank=rank)


def _clients(line: LogLine) -> Facts:
    """The server of the store, which rank 0 is, counts who connected, itself included."""
    found = _CLIENTS.search(line.text)
    if found:
        rank = line.rank if line.rank is not None else 0
        wait = StoreWait(rank=rank, world_size=int(found[2]), joined=int(found[1]), has_timed_out=True)
        yield line.event(wait, rank=rank)


def _added(line: LogLine) -> Facts:
    found = _ADDED.search(line.text)
    if found:
        yield line.event(StoreWait(rank=int(found[1]), world_size=None, joined=None), rank=int(found[1]))


def _unreachable(line: LogLine) -> Facts:
    text = line.text
    found, errno = _CLIENT.search(text) or _CONNECT.search(text), _ERRNO.search(text)
    if not found or (errno and errno[1] in _HARMLESS_ERRNOS):
        return
    place = found if "host" in found.groupdict() else _PAIR.search(text) or _BRACKET.search(text)
    reason = errno[2] if errno else found["reason"]
    address = f"{place['host']}:{place['port']}" if place else ""
    yield line.event(StoreUnreachable(address=clean(address), reason=clean(reason.strip(" :"), _MAX_REASON)))


def _unresolved(line: LogLine) -> Facts:
    """Torch asks for IPv6 first and warns where there is none; that harms nothing."""
    found = _UNRESOLVED.search(line.text)
    if found and "IPv6" not in line.text:
        reason = "name cannot be resolved" + found["reason"]
        yield line.event(StoreUnreachable(address=clean(f"{found['host']}:{found['port']}"), reason=clean(reason)))


def _old_connect(line: LogLine) -> Facts:
    found = _OLD_CONNECT.search(line.text)
    if found:
        yield line.event(StoreUnreachable(address="", reason=clean(found[0])))


def _listen(line: LogLine) -> Facts:
    found = _LISTEN.search(line.text)
    if found and ("socket" in line.text or "errno: 98" in line.text or "EADDRINUSE" in line.text):
        yield line.event(SetupError(text=clean(found[0], _MAX_REASON)))


def _wait(line: LogLine) -> Facts:
    found = _WAIT.search(line.text)
    if found:
        keys = (found["keys"] or "").strip()
        yield line.event(StoreTimeout(key=clean(keys, _MAX_REASON), timeout_ms=int(found["ms"])))


def _get(line: LogLine) -> Facts:
    """`wait timeout` behind it has the key itself."""
    found = _GET.search(line.text)
    if not found or "wait timeout after" in line.text:
        return
    if "imeout" in found["error"]:
        yield line.event(StoreTimeout(key=clean(found["key"])))
    else:
        yield line.event(PeerLost(reason=clean(found["error"], _MAX_REASON), is_store=True))


def _poll(line: LogLine) -> Facts:
    found = _POLL.search(line.text)
    if found:
        yield line.event(StoreTimeout(key="", timeout_ms=whole(found["ms"])))


def _store_lost(line: LogLine) -> Facts:
    found = _STORE_LOST.search(line.text)
    if found:
        remote = _REMOTE.search(found["socket"])
        peer = f"{remote['host']}:{remote['port']}" if remote else ""
        yield line.event(PeerLost(peer=clean(peer), reason=clean(found["reason"], _MAX_REASON), is_store=True))


def _should_dump(line: LogLine) -> Facts:
    found = _SHOULD_DUMP.search(line.text)
    if found:
        yield line.event(PeerLost(reason=clean(found["reason"] or "", _MAX_REASON), is_store=True))


def _closed(line: LogLine) -> Facts:
    found = _CLOSED.search(line.text)
    if found:
        reason = found["reason"] + (found["more"] or "")
        yield line.event(PeerLost(peer=clean(f"{found['host']}:{found['port']}"), reason=clean(reason)))


def _gloo_wait(line: LogLine) -> Facts:
    found = _GLOO_WAIT.search(line.text)
    if found and "monitoredBarrier" not in line.text:
        raised = Raised(exception="RuntimeError", message=clean(found[0]), failure=Failure.COLLECTIVE_ECHO)
        yield line.event(raised)


def _full_mesh(line: LogLine) -> Facts:
    found = _FULL_MESH.search(line.text)
    if found:
        yield line.event(SetupError(text=clean(found[0], _MAX_REASON)))


_FACTS: tuple[tuple[str, Callable[[LogLine], Facts]], ...] = (
    ("store based barrier", _barrier),
    ("Added key: store_based_barrier", _added),
    ("clients joined", _clients),
    (" socket ", _unreachable),
    ("failed to connect/validate", _unreachable),
    ("cannot be retrieved", _unresolved),
    ("connect() timed out", _old_connect),
    ("The server socket has failed", _listen),
    ("Address already in use", _listen),
    ("wait timeout after", _wait),
    ("store->get(", _get),
    ("waitForInput", _poll),
    ("failed on SocketImpl(", _store_lost),
    ('"should dump" flag', _should_dump),
    ("Connection closed by peer", _closed),
    (" error [", _closed),
    ("imeout [", _closed),
    ("Timed out waiting ", _gloo_wait),
    ("connectFullMesh failed", _full_mesh),
    ("Duplicate GPU detected", _quoted),
    ("Mismatched NCCL version", _quoted),
    ("has already checked in", _quoted),
)

# `[c10d]` stands in most of torch's own lines about sockets since 1.11.
NEEDLES = (
    "store based barrier",
    "store_based_barrier_key",
    "clients joined",
    "client socket has",
    "server socket has",
    "failed to connect/validate",
    "cannot be retrieved (gai",
    "connect() timed out",
    "wait timeout after",
    "store->get(",
    "SocketImpl(",
    "flag on TCPStore",
    "Connection closed by peer",
    "gloo/transport",
    "connectFullMesh failed",
    "Duplicate GPU detected",
    "Mismatched NCCL version",
    "has already checked in",
)
BLOCK_NEEDLES = ()


class TorchStart:
    """Each line stands alone."""

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """What the line tells."""
        text = line.text
        done: list[Callable[[LogLine], Facts]] = []
        for needle, facts in _FACTS:
            if needle in text and facts not in done:
                done.append(facts)
                yield from facts(line)

    def end(self) -> Iterator[LogEvent | OpTrace]:
        """Nothing is ever open."""
        return iter(())


RECOGNIZER = TorchStart
