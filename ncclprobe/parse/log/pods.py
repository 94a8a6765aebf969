"""What Kubernetes and Docker say of containers and pods.

In: lines of `kubectl describe pod`, its YAML, `kubectl get pods`, events, and `docker inspect`. Out: `Died` with the
time of the end where it is shown; `Setting` for a pod's node and, of a pod with one GPU, its rank; `WorldSize`.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

from ncclprobe.model.log import Died, LogEvent, Setting, WorldSize
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.signals import died
from ncclprobe.parse.text import clean

NEEDLES = (
    b"OOMKill",
    b"Exit Code:",
    b"exitCode",
    b"ExitCode",
    b"Evicted",
    b"Last State:",
    b"Node: ",
    b"Terminated",
    b"RESTARTS",
)
BLOCK_NEEDLES = (b"Last State:", b"State:          Terminated", b"terminated:", b"RESTARTS")

_MAX_REASON = 300
_POD = r"(?P<pod>[a-z0-9][\w.-]{1,252})"
_ROW = re.compile(rf"^{_POD} +\d+/\d+ +(?P<status>OOMKilled|Evicted|NodeLost|Error)\b")
# `kubectl get pods -o wide`: name, ready, status, restarts, age, address, node
_WIDE_ROW = re.compile(
    rf"^{_POD} +\d+/\d+ +\w\S{{0,60}} +\d+(?: \([^()]{{1,40}}\))? +\w{{1,20}} +(?:[\d.:a-f]{{3,45}}|<none>)"
    r" +(?P<node>[a-z0-9][\w.-]{0,252})(?: |$)"
)
_NAME = re.compile(rf"^(?:Name: +|  name: ){_POD}\s*$")
_NODE = re.compile(r"^Node: +(?P<node>[\w.-]{1,253})(?:/[\w.:]{1,100})?\s*$")
_FIELD = re.compile(
    r'^\s*"?(?P<key>Reason|Exit Code|reason|exitCode|ExitCode|OOMKilled|Message|message)"?: +"?(?P<value>[^",]{1,300})'
)
_END = re.compile(r'^\s*"?(?:Finished|finishedAt|FinishedAt)"?: +"?(?P<when>[^"]{10,40})')
_STATE = re.compile(r"^\s*(?:(?:Last )?State: +(?P<state>\w+)|(?P<yaml>terminated|running|waiting):)")
_SETTING = re.compile(r"^\s+(?P<key>RANK|WORLD_SIZE|PET_NPROC_PER_NODE|nvidia\.com/gpu): +(?P<value>\d{1,7})\s*$")
_KILL = re.compile(r"OOMKilling\b.*Killed process (\d{1,9})")
_LOW_MEMORY = re.compile(r"low on resource: memory")
_REASONS = ("OOMKilled", "true", "Evicted", "Error", "ContainerCannotRun")


class RECOGNIZER:
    """Rows, and the pods and states of containers that are shown field by field."""

    def __init__(self) -> None:
        self._pod: str | None = None
        self._settings: dict[str, int] = {}
        self._name_line: LogLine | None = None
        self._state = _State()

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """What one line tells, or what it ends."""
        text = line.text[:4_000]
        yield from self._of_rows(line, text)
        name, state, setting = _NAME.match(text), _STATE.match(text), _SETTING.match(text)
        if name or state:
            yield from self._told()
        if name:
            yield from self._identity()
            self._pod, self._name_line, self._settings = name["pod"], line, {}
        elif state:
            self._state.is_ended = (state["state"] or state["yaml"]).lower() == "terminated"
        elif setting and self._pod is not None:
            self._settings.setdefault(setting["key"], int(setting["value"]))
        else:
            self._state.see(line, text)
            yield from self._told() if self._state.is_whole else ()

    def end(self) -> Iterator[LogEvent]:
        """A container's end of which no time was seen, and the last pod."""
        yield from self._told()
        yield from self._identity()

    def _of_rows(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        row, wide, kill = _ROW.match(text), _WIDE_ROW.match(text), _KILL.search(text)
        node = _NODE.match(text) if self._pod is not None else None
        if row:
            is_memory = row["status"] == "OOMKilled"
            signal = 9 if is_memory or row["status"] == "Evicted" else None
            fact = Died(signal=signal, reason=clean(text.strip(), _MAX_REASON), is_memory=is_memory)
            yield line.event(fact, host=row["pod"])
        if wide or node:
            name, pod = (wide["node"], wide["pod"]) if wide else (node["node"] if node else "", self._pod)
            yield line.event(Setting(name="node", value=name), host=pod)
        if kill:
            fact = Died(signal=9, reason=clean(text.strip(), _MAX_REASON), is_memory=True)
            yield line.event(fact, pid=int(kill[1]), host=self._pod or line.host)

    def _told(self) -> Iterator[LogEvent]:
        """The container's end, once."""
        state, self._state = self._state, _State()
        fact = state.fact()
        if state.line is not None and fact is not None:
            when_ns = state.end_ns if state.end_ns is not None else state.line.when_ns
            yield state.line.event(fact, host=self._pod or state.line.host, when_ns=when_ns)

    def _identity(self) -> Iterator[LogEvent]:
        """`RANK` in a pod of several processes is that of their launcher."""
        settings, line = self._settings, self._name_line
        is_one = 1 in (settings.get("nvidia.com/gpu"), settings.get("PET_NPROC_PER_NODE"))
        if line is None or "RANK" not in settings or not is_one:
            return
        rank, size = settings["RANK"], settings.get("WORLD_SIZE", 0)
        yield line.event(Setting(name="RANK", value=str(rank)), rank=rank, host=self._pod)
        if size > rank:
            yield line.event(WorldSize(size=size), rank=rank, host=self._pod)


class _State:
    """A container's state: `describe` has the reason first and the time last, YAML and JSON have other orders."""

    def __init__(self) -> None:
        self.is_ended = False
        self.reason = ""
        self.code: int | None = None
        self.end_ns: int | None = None
        self.line: LogLine | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing more is to come."""
        return self.code is not None and bool(self.reason) and self.end_ns is not None

    def see(self, line: LogLine, text: str) -> None:
        """A field of it, or any other line."""
        field, end = _FIELD.match(text), _END.match(text)
        if end:
            self.end_ns = _as_ns(end["when"].strip())
        if not field:
            return
        key, value = field["key"].lower(), field["value"].strip()
        if key in ("reason", "oomkilled") and value in _REASONS:
            self.reason, self.line = "OOMKilled" if value == "true" else value, line
        elif key in ("exit code", "exitcode") and value.isdigit() and len(value) < 4 and self._is_of_container(line):
            self.code, self.line = int(value), self.line or line
        elif key == "message" and _LOW_MEMORY.search(value) and self.reason == "Evicted":
            self.reason = clean(f"Evicted: {value}", _MAX_REASON)

    def _is_of_container(self, line: LogLine) -> bool:
        """An exit code with neither a state nor a container's reason around it may be anybody's."""
        return self.is_ended or bool(self.reason) or '"ExitCode"' in line.text

    def fact(self) -> Died | None:
        """None where it did not end, or ended well."""
        if not (self.code or self.reason):
            return None
        is_memory = self.reason == "OOMKilled" or "low on resource: memory" in self.reason
        if is_memory and self.code in (None, 137):
            return Died(signal=9, reason=self.reason, is_memory=True)
        return died(self.code or 1, self.reason or f"exit code {self.code}", is_memory=is_memory)


def _as_ns(text: str) -> int | None:
    """`Thu, 14 May 2026 03:42:19 +0000`, or `2026-05-14T03:42:19.5Z`: the wall clock, read as UTC."""
    try:
        found = parsedate_to_datetime(text) if "," in text[:5] else datetime.fromisoformat(text[:19])
    except (ValueError, TypeError, IndexError):
        return None
    return int(found.replace(tzinfo=timezone.utc).timestamp()) * 1_000_000_000 if found.year > 1970 else None
