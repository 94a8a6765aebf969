"""Which hosts answer, and which ranks wrote a dump, as pasted transcripts of shell commands show it.

In: lines of `ping`, `ssh`, `sinfo`, `scontrol show node`, `kubectl get nodes`, `ls`. Out: `HostDown` once for each host
and word for it, `DumpWritten` for each dump file that is not empty.

A refused connection comes from a living host, and a drained node runs on: neither is down.
"""

import re
from collections.abc import Iterator

from ncclprobe.model.log import DumpWritten, HostDown, LogEvent
from ncclprobe.parse.log.host_lists import expand
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.text import clean

NEEDLES = (
    b" ping statistics",
    b"packet loss",
    b"PING ",
    b"ssh: connect to host",
    b"Host Unreachable",
    b"not responding",
    b"NODELIST",
    b"NodeName=",
    b"State=",
    b"NotReady",
    b"_trace_rank_",
    b"_rank_",
    b"$ ls",
    b"Remote daemon: ",
)
BLOCK_NEEDLES = (b"NODELIST", b"NodeName=")

_MAX_HOSTS = 4_096
_MAX_REASON = 200
_MAX_LINE = 4_000
_MAX_PATH = 1_000
_PING = re.compile(r"^PING (\S{1,253}) \(|^--- (\S{1,253}) ping statistics ---")
_LOSS = re.compile(r"^\d+ packets transmitted, 0 (?:packets )?received,.*\b100(?:\.0)?% packet loss")
_UNREACHABLE = re.compile(r"^From \S{1,253} .*Destination (?:Host|Net) Unreachable")
_SSH = re.compile(
    r"ssh: connect to host (?P<host>\S{1,253}) port \d+: "
    r"(?P<how>No route to host|(?:Connection|Operation) timed out|Host is down|Network is unreachable)"
)
_SSH_LOST = re.compile(r"\b(?:Timeout|timeout), server (?P<host>\S{1,253}) (?P<how>not responding)")
_SLURMCTLD = re.compile(r"\b[Nn]odes? (?P<host>[\w.,\[\]-]{1,500}) (?P<how>not respond(?:ing)?(?:, setting DOWN)?)\b")
# Open MPI 3 to 5, below "ORTE (or PRTE) has lost communication with a remote daemon".
_DAEMON = re.compile(r"^\s+Remote daemon: (?P<how>\[\S{1,80},\d{1,7}\]) on node (?P<host>[\w.-]{1,253})")
_SINFO_HEAD = re.compile(r"^(?=.*\bNODELIST\b)(?=.*\bSTATE\b)[A-Z_()/:% ]+$")
_DOWN_STATE = re.compile(
    r"^(?:down|fail|unk|unknown|no_respond|future|powered_down)[$@+#~%^-]*$|^[a-z+]+[$@+#~%^-]*\*", re.I
)
_SCONTROL_NODE = re.compile(r"^NodeName=(\S{1,253})")
_SCONTROL_STATE = re.compile(r"^\s+State=([A-Z_+*$@#~%^-]{1,100})")
_KUBECTL = re.compile(r"^(?P<host>[a-z0-9][\w.-]{0,252}) +(?P<how>NotReady(?:,\w+)?|Unknown) +\S")
_KUBE_EVENT = re.compile(r"\bNode (?P<host>\S{1,253}) status is now: (?P<how>NodeNotReady)")
_HINTS = ("ping", "PING", "packet", "nreachable", "ssh: ", "server ", "respond", "NODELIST", "NodeName=", "State=",
          "Not", "Unknown", "_rank_", "trace", "$ ", "rtt ", "daemon")  # fmt: skip
_LS = re.compile(r"^\$ ls(?: -[\w-]+)* +(?P<path>/\S{1,1000}|\S{1,1000}/?)\s*$|^(?P<head>/\S{1,1000}):$")
_LS_ROW = re.compile(
    r"^[-l][rwxsStT-]{9}[.+@]? +\d+ \S+ +\S+ +(?P<size>[\d.]+[KMGT]?) +\S+ +\S+ +\S+(?: \+\d{4})? (?P<name>\S{1,1000})"
)
_DUMP = re.compile(r"(?:^|/)[\w.-]*trace\w*?_(?:rank_)?(\d{1,7})(?:\.(?:json|pickle|pkl))?$")


class RECOGNIZER:
    """Remembers which host a `ping` or `scontrol` is about, and the columns of `sinfo`."""

    def __init__(self) -> None:
        self._down: set[tuple[str, str]] = set()
        self._pinged: str | None = None
        self._node: str | None = None
        self._columns: tuple[int, int] | None = None
        self._folder = ""

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """What one line tells."""
        text = line.text[:_MAX_LINE]
        if self._columns is None and text[:1] != "/" and not any(hint in text for hint in _HINTS):
            return
        yield from self._of_ping(line, text)
        yield from self._of_table(line, text)
        yield from self._of_listing(line, text)
        words = any(word in text for word in ("ssh: ", "respond", "NotReady", "Unknown", "daemon"))
        for pattern in (_SSH, _SSH_LOST, _SLURMCTLD, _KUBECTL, _KUBE_EVENT, _DAEMON) if words else ():
            match = pattern.search(text)
            if match:
                for host in expand(match["host"], _MAX_HOSTS):
                    yield from self._is_down(line, host, match["how"])
                return

    def end(self) -> Iterator[LogEvent]:
        """Nothing is left open."""
        yield from ()

    def _is_down(self, line: LogLine, host: str, how: str) -> Iterator[LogEvent]:
        name = clean(host, 253)
        if (name, how) not in self._down and len(self._down) < _MAX_HOSTS:
            self._down.add((name, how))
            yield line.event(HostDown(host=name, reason=clean(how, _MAX_REASON)), rank=None, pid=None, host=name)

    def _of_ping(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        head = _PING.match(text)
        if head:
            self._pinged = head[1] or head[2]
        elif self._pinged is not None and _LOSS.match(text):
            yield from self._is_down(line, self._pinged, "100% packet loss")
        elif self._pinged is not None and _UNREACHABLE.match(text):
            yield from self._is_down(line, self._pinged, "destination host unreachable")
        if text.startswith(("$ ", "rtt ")):
            self._pinged = None

    def _of_table(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        node, state = _SCONTROL_NODE.match(text), _SCONTROL_STATE.match(text)
        if _SINFO_HEAD.match(text):
            names = text.split()
            self._columns = names.index("NODELIST"), names.index("STATE")
        elif self._columns is not None and not text.startswith("$ "):
            yield from self._row(line, text.split())
        else:
            self._columns = None
        if node:
            self._node = node[1]
        elif state and self._node is not None:
            words = state[1]
            if "DOWN" in words or "NOT_RESPONDING" in words or "*" in words or "FAIL" in words:
                yield from self._is_down(line, self._node, words)

    def _row(self, line: LogLine, cells: list[str]) -> Iterator[LogEvent]:
        nodes, state = self._columns or (0, 0)
        if max(nodes, state) >= len(cells):
            self._columns = None
        elif _DOWN_STATE.match(cells[state]):
            for host in expand(cells[nodes], _MAX_HOSTS):
                yield from self._is_down(line, host, cells[state])

    def _of_listing(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        folder, row = _LS.match(text), _LS_ROW.match(text)
        if folder:
            self._folder = (folder["path"] or folder["head"]).rstrip("/")
        elif row:
            yield from self._file(line, row["name"]) if row["size"] != "0" else ()
        elif "_rank_" in text and all(len(name) < _MAX_PATH and _DUMP.search(name) for name in text.split()):
            for name in text.split():  # plain `ls`, `find`
                yield from self._file(line, name)

    def _file(self, line: LogLine, name: str) -> Iterator[LogEvent]:
        match = _DUMP.search(name)
        if match:
            path = name if "/" in name or not self._folder else f"{self._folder}/{name}"
            yield line.event(DumpWritten(path=clean(path), rank=int(match[1])), rank=None)
