"""What Slurm and systemd say of processes that ended.

In: lines of `srun`, `slurmstepd` and the journal. Out: `Died`, `StoppedByLauncher`, `HostDown` for a failed node.

A Slurm task is a rank only where each rank is a task: where srun's labels (`5: `) stand before lines that name that
rank themselves, and no other. Else its number stands in the event's reason only (`task 5: Killed`). After a step is
cancelled, the kills of its other tasks are echoes.
"""

import re
from collections.abc import Iterator
from typing import Any

from ncclprobe.model.log import Died, HostDown, LogEvent, StoppedByLauncher
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
    b"systemd",
    b"status=9/KILL",
    b"oom-kill",
)
BLOCK_NEEDLES: tuple[bytes, ...] = ()

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


class RECOGNIZER:
    """Single lines; whether srun is stopping is remembered."""

    def __init__(self) -> None:
        self._is_stopping = False
        self._tasks = _Tasks()

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """What one line tells; a container's end is told with its exit code."""
        text = line.text[:4_000]
        self._tasks.see(line)
        if "srun: " in text or "slurm" in text:
            yield from self._of_slurm(line, text)
        elif "ystemd" in text or "due to memory" in text or ".service: " in text or ".scope: " in text:
            yield from _of_systemd(line, text)

    def end(self) -> Iterator[LogEvent]:
        """Nothing is left open."""
        yield from ()

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
