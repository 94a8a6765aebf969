"""Lines of several processes in one file, told apart by what a launcher put before each line.

In: text. Out: one `Section` for each label (`5: ` of srun -l, `[rank3]:`, `node1: ` of pdsh, `[1,3]<stdout>:` of
mpirun, `(Worker pid=123) `, `[pod/name/container] `); one without a label where there is none.

A label is believed only if a line that starts a stack stands behind it: text of stacks is full of colons.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_LABEL = re.compile(
    r"[ ]*(?P<task>\d{1,7}):(?: |$)"
    r"|\[(?:rank|Rank |RANK )(?P<rank>\d{1,7})\]:? ?"
    r"|\[[A-Za-z_]\w*?(?P<local>\d{1,4})\]: ?"
    r"|\[[^\],\s]+,(?P<mpi>\d{1,7})\]<std(?:out|err)>:? ?"
    r"|\((?P<title>[\w:.\-]*) ?\bpid=(?P<pid>\d{1,9})(?:, [^)]{0,200})?\)(?: |$)"
    r"|\[pod/(?P<pod>[^\]\s/]+)[^\]\s]*\](?: |$)"
    r"|(?P<host>(?!Error|Timeout|Traceback)[A-Za-z0-9][\w.\-]*):(?: |$)"
)
_HEADER = re.compile(
    r"Process \d+: |Thread (?:\d|0x)|Traceback for thread |Current thread 0x|Stack \(most recent call first|\[<"
    r"|\[\s*(?:\{|$|\])|==> /proc/|/proc/\d+/|Fatal Python error: |Timeout \(\d"
)
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_MAX_LABELS = 3
_MAX_LABEL = 300


@dataclass(slots=True)
class Section:
    """Lines of one writer, without label, colours and line ends; None and empty text: the label does not say.

    `is_headed`: a line above them says whose they are.
    """

    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    host: str = ""
    title: str = ""
    lines: list[str] = field(default_factory=list)
    is_headed: bool = False


def split(text: str) -> list[Section]:
    """In order of first appearance; lines without a label belong to a section of their own."""
    lines = [line.rstrip() for line in _COLOURS.sub("", text).splitlines()]
    labels = {label for line in lines if ":" in line or "]" in line or ")" in line for label in _label_of_header(line)}
    if not labels:
        return [Section(lines=lines)]
    sections: dict[str, Section] = {}
    for line in lines:
        label = next((label for label in _labels(line) if label.rstrip() in labels), "")
        section = sections.get(label.rstrip())
        if section is None:
            section = sections[label.rstrip()] = _section(label)
        section.lines.append(line[len(label) :])
    return [section for section in sections.values() if any(section.lines)]


def _label_of_header(line: str) -> Iterator[str]:
    for label in _labels(line):
        if _HEADER.match(line, len(label)):
            yield label.rstrip()
            return


def _labels(line: str) -> list[str]:
    """What could be the label, the longest first: up to three prefixes."""
    ends: list[int] = []
    while len(ends) < _MAX_LABELS:
        match = _LABEL.match(line, ends[-1] if ends else 0)
        if match is None or match.end() > _MAX_LABEL:
            break
        ends.append(match.end())
    return [line[:end] for end in reversed(ends)]


def _section(label: str) -> Section:
    """Of `node1: 5: `, both; where two say the rank, the inner one."""
    section, at = Section(), 0
    while match := _LABEL.match(label, at) if at < len(label) else None:
        at = match.end()
        found = match.groupdict()
        rank = found["task"] or found["rank"] or found["mpi"]
        section.rank = int(rank) if rank else section.rank
        section.local_rank = int(found["local"]) if found["local"] else section.local_rank
        section.pid = int(found["pid"]) if found["pid"] else section.pid
        section.host = found["host"] or found["pod"] or section.host
        section.title = found["title"] or section.title
    return section
