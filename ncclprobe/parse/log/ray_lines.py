"""What Ray says of workers, actors and nodes that ended.

In: lines of a driver, a raylet or the GCS. Out: `Died` with pid and address, `StoppedByLauncher`, `HostDown`.

Ray lists "potential root causes" that name the OOM killer in every such message: fixed text, no proof. Only its own
memory monitor says that memory was the reason.
"""

import re
from collections.abc import Iterator
from typing import Any

from ncclprobe.model.log import Died, HostDown, LogEvent, StoppedByLauncher
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.text import clean

NEEDLES = (
    b"Worker exit type",
    b"died unexpectedly",
    b"ActorDiedError",
    b"RayActorError",
    b"WorkerCrashedError",
    b"The actor is dead because",
    b"running low on memory",
    b"due to memory pressure",
    b"has been marked dead",
    b"missed too many heartbeats",
)
BLOCK_NEEDLES = (b"ActorDiedError", b"RayActorError", b"died unexpectedly before finishing")

_MAX_REASON = 300
_HINTS = (
    "died unexpectedly",
    "exit type",
    "ActorDied",
    "RayActor",
    "WorkerCrashed",
    "memory",
    "marked dead",
    "heartbeats",
)
_EXIT = re.compile(r"Worker exit type: (?P<type>\w{1,60})(?: Worker exit detail: (?P<detail>.{0,2000}))?")
_WORKER_PID = re.compile(r"Worker PID: (\d{1,9})")
_WORKER_IP = re.compile(r"Worker IP address: ([\w.:-]{1,100})")
_SHORT = re.compile(r"\(pid[ =](?P<pid>\d{1,9}), ip[ =](?P<ip>[\w.:-]{1,100})[^)]*\) died unexpectedly")
_BLOCK = re.compile(r"(?:ActorDiedError|RayActorError|WorkerCrashedError)\b")
_FIELD = re.compile(r"^\s+(?P<key>pid|ip): (?P<value>[\w.:-]{1,100})\s*$")
_LOW_MEMORY = re.compile(
    r"Task was killed due to the node running low on memory|[1-9]\d* Workers? \(tasks / actors\) killed due to memory"
)
_MEMORY_PID = re.compile(r"\bpid=(\d{1,9})")
_MEMORY_IP = re.compile(r"\bIP: ([\w.:-]{1,100}?)[,)]")
_DEAD_NODE = re.compile(r"\baddress: (?P<host>[\w.:-]{1,100}?)[, ].{0,200}(?:marked dead|missed too many heartbeats)")
_SYSTEM_CAUSES = re.compile(r" There are some potential root causes.*")


class RECOGNIZER:
    """Single lines, and the fields below an actor's error."""

    def __init__(self) -> None:
        self._actor: dict[str, dict[str, Any]] = {}

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """What one line tells."""
        text = line.text[:8_000]
        if line.speaker not in self._actor and not any(hint in text for hint in _HINTS):
            return
        short, node = _SHORT.search(text), _DEAD_NODE.search(text)
        if _LOW_MEMORY.search(text):
            yield _of_memory(line, text)
        elif node:
            fact = HostDown(host=node["host"], reason=clean(text.strip(), _MAX_REASON))
            yield line.event(fact, rank=None, pid=None, host=node["host"])
        elif short:
            fact_ = Died(reason=clean(text.strip(), _MAX_REASON))
            yield line.event(fact_, rank=None, pid=int(short["pid"]), host=short["ip"])
        else:
            yield from self._of_exit(line, text)

    def end(self) -> Iterator[LogEvent]:
        """An actor's error is told with its exit type, and else not: its exception is."""
        self._actor.clear()
        yield from ()

    def _of_exit(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        if _BLOCK.search(text) and len(self._actor) < 1_024:
            self._actor[line.speaker] = {}
        field = _FIELD.match(text)
        if field and line.speaker in self._actor:
            is_pid = field["key"] == "pid"
            value = int(field["value"]) if is_pid and field["value"].isdigit() else field["value"]
            self._actor[line.speaker]["pid" if is_pid else "host"] = value
        ended = _EXIT.search(text)
        if ended is None:
            return
        who: dict[str, Any] = {"rank": None, **self._actor.pop(line.speaker, {})}
        pid, address = _WORKER_PID.search(text), _WORKER_IP.search(text)
        who |= {"pid": int(pid[1])} if pid else {}
        who |= {"host": address[1]} if address else {}
        detail = _SYSTEM_CAUSES.sub("", ended["detail"] or "")
        reason = clean(f"{ended['type']} {detail}".strip(), _MAX_REASON)
        yield line.event(StoppedByLauncher() if ended["type"].startswith("INTENDED") else Died(reason=reason), **who)


def _of_memory(line: LogLine, text: str) -> LogEvent:
    pid, address = _MEMORY_PID.search(text), _MEMORY_IP.search(text)
    who: dict[str, Any] = {"rank": None, "pid": int(pid[1]) if pid else None}
    who |= {"host": address[1]} if address else {}
    return line.event(Died(signal=9, reason=clean(text.strip(), _MAX_REASON), is_memory=True), **who)
