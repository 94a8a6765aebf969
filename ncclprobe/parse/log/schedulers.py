"""What Slurm, Kubernetes and systemd say of processes that ended.

In: lines of `srun`, `slurmstepd`, `kubectl describe pod`, `kubectl get pods`, events, `docker inspect` and the journal.
Out: `Died`, `StoppedByLauncher`, `HostDown` for a failed node, and `Setting` for a pod's node.

A Slurm task is a rank only where each rank is a task: where srun's labels (`5: `) stand before lines that name that
rank themselves, and no other. Else its number stands in the event's reason only (`task 5: Killed`). After a step is
cancelled, the kills of its other tasks are echoes.
"""

import re
from collections.abc import Iterator
from typing import Any

from ncclprobe.model.log import Died, HostDown, LogEvent, Setting, StoppedByLauncher
from ncclprobe.parse.log.host_lists import expand
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.signals import died, number
from ncclprobe.parse.text import clean

NEEDLES = (
    b"srun: error",
    b"srun: Terminating",
    b"srun: Job step aborted",
    b"srun: Force Terminated",
    b"slurmstepd: error",
    b"OOMKill",
    b"Exit Code:",
    b"exitCode",
    b"ExitCode",
    b"Evicted",
    b"Last State:",
    b"Node: ",
    b"Terminated",
    b"systemd",
    b"status=9/KILL",
    b"oom-kill",
)
BLOCK_NEEDLES = (b"Last State:", b"State:          Terminated", b"terminated:")

_MAX_REASON = 300
_MAX_HOSTS = 64
_TASKS = re.compile(
    r"srun: error: (?P<hosts>\S{1,2000}): tasks? (?P<tasks>[\d,\[\]-]{1,2000}): "
    r"(?P<how>.{1,200}?)(?: \(core dumped\))?\s*$"
)
_LABEL = re.compile(r"(\d{1,7}):")
_EXITED = re.compile(r"Exited with exit code (\d{1,3})")
_STOPPING = re.compile(
    r"srun: (?:Force )?Terminat(?:ing|ed) (?:StepId|job step)|srun: Job step aborted|Job/step already completing"
)
_CANCELLED = re.compile(r"\*\*\* (?:STEP|JOB) \S{1,40} ON (?P<host>[\w.-]{1,200}) CANCELLED AT ")
_STEP_MEMORY = re.compile(
    r"Detected \d+ oom[_-]kill event|[Ee]xceeded (?:job|step) memory limit|exceeded memory limit .{0,80}being killed"
)
_NODE_FAILED = re.compile(
    r"srun: error: Node failure on (?P<hosts>\S{1,500})|DUE TO NODE (?P<node>[\w.-]{1,200}) FAILURE"
    r"|Task launch for \S{1,60} failed on node (?P<launch>[\w.-]{1,200}): Communication connection failure"
)
_OOMD = re.compile(r"\bKilled (/?\S{1,300}) due to memory (?:pressure|used)")
_UNIT = re.compile(r"(\S{1,200}): Main process exited, code=(?:killed|dumped|exited), status=(\d{1,3})/(\w+)")
_UNIT_MEMORY = re.compile(
    r"(\S{1,200}): (?:A process of this unit has been killed by the OOM killer|Failed with result 'oom-kill')"
)
_POD_ROW = re.compile(r"^(?P<pod>[a-z0-9][\w.-]{1,252}) +\d+/\d+ +(?P<status>OOMKilled|Evicted|NodeLost|Error)\b")
_POD_NAME = re.compile(r"^(?:Name: +|  name: )(?P<pod>[a-z0-9][\w.-]{1,252})\s*$")
_POD_NODE = re.compile(r"^Node: +(?P<node>[\w.-]{1,253})(?:/[\w.:]{1,100})?\s*$")
_POD_FIELD = re.compile(
    r'^\s*"?(?P<key>Reason|Exit Code|reason|exitCode|ExitCode|OOMKilled|Message|message)"?: +"?(?P<value>[^",]{1,300})'
)
_POD_STATE = re.compile(r"^\s*(?:(?:Last )?State: +(?P<state>\w+)|(?P<yaml>terminated|running|waiting):)")
_POD_KILL = re.compile(r"OOMKilling\b.*Killed process (\d{1,9})")
_LOW_MEMORY = re.compile(r"low on resource: memory")


class RECOGNIZER:
    """Single lines, and the state of a container over a few."""

    def __init__(self) -> None:
        self._is_stopping = False
        self._tasks = _Tasks()
        self._pod = _Pod()

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """What one line tells; a container's end is told with its exit code."""
        text = line.text[:4_000]
        self._tasks.see(line)
        if "srun: " in text or "slurm" in text:
            yield from self._of_slurm(line, text)
        elif "ystemd" in text or "due to memory" in text or ".service: " in text or ".scope: " in text:
            yield from _of_systemd(line, text)
        else:
            yield from self._pod.feed(line, text)

    def end(self) -> Iterator[LogEvent]:
        """A container's end of which no exit code was seen."""
        yield from self._pod.told()

    def _of_slurm(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        nobody: dict[str, Any] = {"rank": None, "pid": None, "host": line.host}
        tasks, cancelled, failed = _TASKS.search(text), _CANCELLED.search(text), _NODE_FAILED.search(text)
        if failed:
            hosts = expand(failed["hosts"] or failed["node"] or failed["launch"], _MAX_HOSTS)
            for host in hosts:
                fact = HostDown(host=host, reason=clean(text.strip(), _MAX_REASON))
                yield line.event(fact, **(nobody | {"host": host}))
        elif tasks:
            yield from self._of_tasks(line, tasks)
        elif _STEP_MEMORY.search(text):
            reason = clean(text.strip(), _MAX_REASON)
            yield line.event(Died(signal=9, reason=reason, is_memory=True), **nobody)
        elif cancelled or _STOPPING.search(text):
            self._is_stopping = True
            where = {"host": cancelled["host"]} if cancelled else {}
            yield line.event(StoppedByLauncher(), **(nobody | where))

    def _of_tasks(self, line: LogLine, match: re.Match[str]) -> Iterator[LogEvent]:
        how = match["how"].strip()
        code = _EXITED.search(how)
        signal = number(how)
        is_memory = how.lower().startswith("out of memory")
        hosts = expand(match["hosts"], _MAX_HOSTS)
        for task in _numbers(match["tasks"]):
            reason = f"task {task}: {clean(how, _MAX_REASON)}"
            fact: Died | StoppedByLauncher
            if signal == 15 or (signal == 9 and self._is_stopping):
                fact = StoppedByLauncher()
            elif code:
                fact = died(int(code[1]), reason)
            else:
                fact = Died(signal=9 if is_memory else signal, reason=reason, is_memory=is_memory)
            host = hosts[0] if len(hosts) == 1 else None
            yield line.event(fact, rank=self._tasks.rank(task), pid=None, host=host)


class _Tasks:
    """Whether the labels of srun are ranks: each line with one that names a rank must name that rank."""

    def __init__(self) -> None:
        self._is_shown = False
        self._is_wrong = False

    def see(self, line: LogLine) -> None:
        """A rank 0 behind the label 0 shows nothing: every first task has it."""
        label = _LABEL.match(line.speaker)
        if label is None or line.rank is None or self._is_wrong:
            return
        self._is_wrong = line.rank != int(label[1])
        self._is_shown = self._is_shown or line.rank > 0

    def rank(self, task: int) -> int | None:
        """The task's number, where that is a rank."""
        return task if self._is_shown and not self._is_wrong else None


class _Pod:
    """The container that `kubectl describe`, its YAML, or `docker inspect` shows field by field."""

    def __init__(self) -> None:
        self.pod: str | None = None
        self.is_ended = False
        self.reason = ""
        self.code: int | None = None
        self.line: LogLine | None = None

    def feed(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        """Told with the exit code, which comes after the reason in `describe` and before it in YAML and JSON."""
        name, row, state = _POD_NAME.match(text), _POD_ROW.match(text), _POD_STATE.match(text)
        field, kill, node = _POD_FIELD.match(text), _POD_KILL.search(text), _POD_NODE.match(text)
        if name or state:
            yield from self.told()
            self.pod = name["pod"] if name else self.pod
            self.is_ended = state is not None and (state["state"] or state["yaml"]).lower() == "terminated"
        elif node and self.pod is not None:
            yield line.event(Setting(name="node", value=node["node"]), host=self.pod)
        elif row:
            is_memory = row["status"] == "OOMKilled"
            reason = clean(text.strip(), _MAX_REASON)
            is_killed = is_memory or row["status"] == "Evicted"
            yield line.event(Died(signal=9 if is_killed else None, reason=reason, is_memory=is_memory), host=row["pod"])
        elif kill:
            fact = Died(signal=9, reason=clean(text.strip(), _MAX_REASON), is_memory=True)
            yield line.event(fact, pid=int(kill[1]), host=self.pod or line.host)
        elif field:
            yield from self._field(line, field["key"].lower(), field["value"].strip())

    def _field(self, line: LogLine, key: str, value: str) -> Iterator[LogEvent]:
        if key in ("reason", "oomkilled") and value in ("OOMKilled", "true", "Evicted", "Error", "ContainerCannotRun"):
            self.reason, self.line = "OOMKilled" if value == "true" else value, line
        elif key in ("exit code", "exitcode") and value.isdigit() and len(value) < 4 and self._is_of_container(line):
            self.code, self.line = int(value), self.line or line
        elif key == "message" and _LOW_MEMORY.search(value) and self.reason == "Evicted":
            self.reason = clean(f"Evicted: {value}", _MAX_REASON)
        yield from self.told() if self.code is not None and self.reason else ()

    def _is_of_container(self, line: LogLine) -> bool:
        """An exit code with neither a state nor a container's reason around it may be anybody's."""
        return self.is_ended or bool(self.reason) or '"ExitCode"' in line.text

    def told(self) -> Iterator[LogEvent]:
        """What was read so far, once."""
        line, reason, code = self.line, self.reason, self.code
        self.line, self.reason, self.code, self.is_ended = None, "", None, False
        is_memory = reason == "OOMKilled" or "low on resource: memory" in reason
        if line is None or not (code or reason):
            return
        fact = Died(signal=9, reason=reason, is_memory=True) if is_memory and code in (None, 137) else None
        who = {"host": self.pod or line.host}
        yield line.event(fact or died(code or 1, reason or f"exit code {code}", is_memory=is_memory), **who)


def _of_systemd(line: LogLine, text: str) -> Iterator[LogEvent]:
    unit, reason = _UNIT.search(text), clean(text.strip(), _MAX_REASON)
    if _OOMD.search(text) or _UNIT_MEMORY.search(text):
        yield line.event(Died(signal=9, reason=reason, is_memory=True), rank=None, pid=None)
    elif unit:
        signal = number(unit[3])
        is_stop = signal == 15
        fact = Died(signal=signal, reason=reason) if signal is not None else died(int(unit[2]), reason)
        yield line.event(StoppedByLauncher() if is_stop else fact, rank=None, pid=None)


def _numbers(text: str) -> list[int]:
    """`0-3,5` and `[0-3,5]`; at most a few thousand."""
    found: list[int] = []
    for part in text.strip("[]").split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part)
        if match:
            last = int(match[2] or match[1])
            found.extend(range(int(match[1]), min(last, int(match[1]) + 4_096) + 1))
    return found[:4_096]
