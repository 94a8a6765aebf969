"""What NCCL says in its debug log, but for the operations: communicators, settings, and what goes wrong.

In: lines that hold NCCL messages, 2.10 to 2.30.7, or its version. Out: events; each has the host and the pid of the
message, and no rank, for NCCL prints none but that inside a communicator.
"""

import re
from collections import Counter
from collections.abc import Iterator

from ncclprobe.model.log import CommEvent, LogEvent, LogFact, NcclWarning, Setting
from ncclprobe.parse.log import nccl_comm
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.nccl_prefix import Hosts, Said, messages
from ncclprobe.parse.log.nccl_warnings import fact_of_info, fact_of_warning
from ncclprobe.parse.text import clean

NEEDLES = (
    *nccl_comm.NEEDLES,
    *("NCCL WARN ", "NCCL version 2", "set by environment to ", "cudaDriverVersion ", "Using network "),
    *("Bootstrap : Using ", "Bootstrap: Using ", "NET/Socket : Using ", "; OOB "),
    *("] Connection closed by localRank", " returned Connection ", ".cc:"),
)
BLOCK_NEEDLES: tuple[str, ...] = ()

# Of one process and one kind of fact: a progress thread can repeat its error a hundred thousand times.
MAX_OF_A_KIND = 200
_MAX_NEIGHBOUR_LINES = 50
_MAX_TEXT = 300
_MAX_SETTINGS = 200_000

_VERSION = re.compile(r"\bNCCL version (2\.\d{1,3}\.\d{1,3})(?!\d)")
_ENVIRONMENT = re.compile(r"((?:NCCL|RCCL)_\w{1,60}) set by environment to (.{0,200})")
_DRIVER = re.compile(r"\bcudaDriverVersion (\d{4,6})\b")
_NETWORK = re.compile(r"^Using network (\S.{0,60})")
# The interface for everything but the data: `Bootstrap : Using eth0:10.0.0.1<0>`, since 2.23 without the blank.
_ADDRESS = re.compile(
    r"(?:Bootstrap ?: Using|NET/Socket ?: Using|; OOB) (?:\[0\])?"
    r"(?P<name>[\w.@-]{1,32}):(?P<address>[\w.:%-]{2,80})<\d{1,5}>"
)
# `init.cc:1270 -> 3`, `group.cc:64 -> 3 [Async thread]`; since 2.30.7 with the function.
_BACKTRACE = re.compile(r"^\S{1,160}\.(?:cc|h|c|cu):\d{1,7} (?:\([^)]{0,160}\) )?-> \d{1,3}\b")


class NcclLines:
    """Reads one log."""

    def __init__(self) -> None:
        self._hosts = Hosts()
        self._known: set[tuple[object, ...]] = set()
        self._count: Counter[tuple[str, int, type[object]]] = Counter()
        self._in_backtrace: set[tuple[str, int, int]] = set()
        self._neighbour: dict[str, tuple[int, str]] = {}
        self._nameless: dict[str, tuple[LogLine, Setting]] = {}

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """What the line's messages tell."""
        if not any(needle in line.text for needle in NEEDLES):  # a regular expression takes five times as long
            return
        said = None
        for said in messages(line.text, self._hosts):
            yield from self._found_host(line, said.host)
            yield from self._events(line, said)
        if said is None and (version := _VERSION.search(line.text)):
            yield from self._version_without_prefix(line, Setting(name="nccl", value=version[1]))

    def end(self) -> Iterator[LogEvent]:
        """Versions for which no host was found."""
        for line, setting in self._nameless.values():
            yield line.event(setting)

    def _events(self, line: LogLine, said: Said) -> Iterator[LogEvent]:
        fact = self._fact(said)
        if fact is None or self._is_enough(said, fact):
            return
        who = {"host": clean(said.host), "pid": said.pid}
        if said.when_ns is not None:
            yield line.event(fact, when_ns=said.when_ns, **who)
        else:
            yield line.event(fact, **who)

    def _fact(self, said: Said) -> LogFact | None:
        thread = (said.host, said.pid, said.thread)
        if said.level == "INFO" and _BACKTRACE.match(said.message):
            is_first = thread not in self._in_backtrace
            self._in_backtrace.add(thread)
            return NcclWarning(text=clean(said.message, _MAX_TEXT)) if is_first else None
        self._in_backtrace.discard(thread)
        if said.level == "WARN":
            return fact_of_warning(said.message)
        return nccl_comm.comm_event(said.message) or _setting(said.message) or fact_of_info(said.message)

    def _is_enough(self, said: Said, fact: LogFact) -> bool:
        """Settings once a process; of what goes wrong the first, which are nearest to the cause."""
        if isinstance(fact, CommEvent):
            return False
        if isinstance(fact, Setting):
            key = (said.host, said.pid, fact)
            is_known = key in self._known or len(self._known) >= _MAX_SETTINGS
            self._known.add(key)
            return is_known
        kind = (said.host, said.pid, type(fact))
        self._count[kind] += 1
        return self._count[kind] > MAX_OF_A_KIND

    def _found_host(self, line: LogLine, host: str) -> Iterator[LogEvent]:
        """Notes who speaks; a version that stood alone shortly before is this host's."""
        self._neighbour[line.speaker] = (line.number, host)
        waiting = self._nameless.pop(line.speaker, None)
        if waiting is not None:
            is_near = line.number - waiting[0].number <= _MAX_NEIGHBOUR_LINES
            yield waiting[0].event(waiting[1], **({"host": clean(host)} if is_near else {}))

    def _version_without_prefix(self, line: LogLine, setting: Setting) -> Iterator[LogEvent]:
        """Level VERSION prints it bare, rank 0 of a communicator alone: the host is that of the lines around it."""
        number, host = self._neighbour.get(line.speaker, (-1, ""))
        if line.host is not None:
            yield line.event(setting)
        elif host and line.number - number <= _MAX_NEIGHBOUR_LINES:
            yield line.event(setting, host=clean(host))
        elif line.speaker not in self._nameless:
            self._nameless[line.speaker] = (line, setting)


def _setting(message: str) -> Setting | None:
    if version := _VERSION.search(message):
        return Setting(name="nccl", value=version[1])
    if variable := _ENVIRONMENT.search(message):
        return Setting(name=variable[1], value=_value(variable[2]))
    if driver := _DRIVER.search(message):
        number = int(driver[1])  # 12040 is CUDA 12.4
        return Setting(name="cuda_driver", value=f"{number // 1000}.{number % 1000 // 10}")
    if network := _NETWORK.search(message):
        return Setting(name="network", value=clean(network[1].strip()))
    if address := _ADDRESS.search(message):
        return Setting(name="address", value=f"{clean(address['name'])} {clean(address['address'])}")
    return None


def _value(text: str) -> str:
    """Numbers are printed with a full stop behind them, and text without."""
    value = text.strip()
    return value[:-1] if re.fullmatch(r"-?\d+\.", value) else clean(value)


RECOGNIZER = NcclLines
