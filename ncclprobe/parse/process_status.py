"""Pids inside and outside of a container, as `/proc/PID/status` tells them.

In: the text of such files, whole or only their lines `NSpid:`, as `cat`, `head` and `grep` print them. Out: a
`JobProcess` for each process that has another pid inside; of which rank it is, nothing here tells.
"""

import re
from collections.abc import Iterator

from ncclprobe.model.errors import ParseError
from ncclprobe.model.job import JobKey, JobProcess, Role
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.text import clean, decoded

MAX_PROCESSES = 100_000
_MAX_LINES = 2_000
_PATH = r"(?:/proc/\d{1,9}/status[:-](?:\d{1,4}[:-])?)?"
_FIELD = re.compile(rf"{_PATH}[A-Z]\w{{1,40}}:(?:[ \t]|$)")
_NAME = re.compile(rf"{_PATH}Name:[ \t]+(?P<name>.{{1,64}})$")
_INNER = re.compile(rf"{_PATH}NSpid:[ \t]+(?P<outer>\d{{1,9}})(?:[ \t]+\d{{1,9}})*?[ \t]+(?P<inner>\d{{1,9}})[ \t]*$")
_OTHER = re.compile(r"\s*(?:[$#>+]\s|==> |--|\w+@\S+[$#] )")


def is_status(head: bytes) -> bool:
    """Whether a file that begins so is such fields, and has one that tells both pids."""
    if b"NSpid:" not in head or b"\0" in head:
        return False
    lines = [line for line in head.decode("utf-8", "replace").splitlines()[:_MAX_LINES] if line.strip()]
    fields = sum(_FIELD.match(line) is not None for line in lines)
    others = sum(_OTHER.match(line) is not None for line in lines)
    return any(map(_INNER.match, lines)) and 2 * fields > len(lines) - others


def parse(data: bytes) -> Parsed[JobProcess]:
    """In order; ParseError when no process has two pids."""
    found = tuple(_processes(decoded(data, "the status of processes")))
    if not found:
        raise ParseError("no process in it has another pid inside a container")
    problem = f"it tells of {len(found)} processes; only the first {MAX_PROCESSES} were looked at"
    return Parsed(records=found[:MAX_PROCESSES], problems=(problem,) if len(found) > MAX_PROCESSES else ())


def _processes(text: str) -> Iterator[JobProcess]:
    name = ""
    for line in text.splitlines():
        if named := _NAME.match(line):
            name = clean(named["name"].strip(), 64)
        elif pids := _INNER.match(line):
            yield _process(int(pids["outer"]), int(pids["inner"]), name)
            name = ""


def _process(outer: int, inner: int, name: str) -> JobProcess:
    return JobProcess(
        pid=outer,
        role=Role.RANK,
        rank=None,
        local_rank=None,
        world_size=None,
        job=JobKey(),
        command=name,
        user="",
        inner_pid=inner,
    )
