"""How a log looks: the width at which a terminal broke its lines, the labels in front of them, its year.

In: a sample of the log, both ends of it. Out: `Layout`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ncclprobe.parse.log.clock import first_dated_ns
from ncclprobe.parse.log.stamps import without_stamp

_MIN_WIDTH, _MAX_WIDTH = 40, 400
_USUAL_WIDTHS = frozenset({80, 100, 120, 132, 140, 150, 160, 180, 200, 240})
_MAX_LINES = 20_000
_LABEL_SHARE = 0.5
_FEW_HOSTS = 8
_COLUMNS = 4

_TASK = re.compile(r" {0,5}\d{1,5}: ?")
_HOST = re.compile(r"(?=[\w.-]*[\d.])([A-Za-z0-9][\w.-]{0,252}): ?")
_NO_HOST = re.compile(
    r"(?:step|epoch|iter|batch|loss|lr|train|val|eval|rank|gpu|layer|stage|line)[\d._-]*", re.IGNORECASE
)
_GREP = re.compile(r"(?:[\w.@+=-]{1,100}/){0,12}[\w.@+=-]{1,100}\.(?:log|out|err|txt|stderr|stdout)[:-]")
# Two labels of which the first is the launcher's; torch's own label at the start of a line shows that there is none.
_TWO_RANKS = re.compile(r"\[rank(\d{1,7})\]: ?\[rank(\d{1,7})\]")
_TORCH_FIRST = re.compile(r"\[rank\d{1,7}\]:\[[DIWEF]")
_TORCH_RANK = re.compile(r"\[rank(\d{1,7})\]:")
_LOGGER_RANK = re.compile(r"\[PID:\d{1,9}\] \[RANK:(\d{1,7})\]")
_FILE = re.compile(r"\.(py|cpp|cc|cu|c|h|sh|json|yaml|log|md|txt)$", re.IGNORECASE)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>]")
_BARE_ANSI = re.compile(r"\[(?:\d{1,3}(?:;\d{1,3})*)?m")
# What a line begins with that is surely not the middle of another one.
_START = re.compile(
    r"\[?(?:rank|default|Rank )\d+\]|\[[DIWEF]\d* |[DIWEF]\d{3,4} \d\d?:\d\d"
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[ T_]\d\d:|\[?\d\d[-/]\d\d(?:[-/]\d+)? \d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d "
    r"|\[\d+,\d+\]<std|\([\w ]+ pid=\d+|[\w.-]+:\d+:\d+ \[-?\d+\]|srun: |slurmstepd: "
    r"|Traceback \(|  File \"|frame #\d+|terminate called|\s+what\(\): |Exception raised from "
    r"|(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)\b|\{[\"']|[=*#-]{5}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`wrap_width` in characters, None where lines are whole; `starts` are first words of what surely is a line.

    `has_tasks`: lines have srun's labels (`3: `), `has_files`: those of `grep`. `has_role_labels`: `[rank3]:` is the
    launcher's label, `has_ranks_per_host`: `[RANK:3]` a logger's; both count local ranks. `hosts`: names in pdsh's
    labels. `near_ns`: a dated line's time.
    """

    wrap_width: int | None = None
    starts: frozenset[str] = field(default_factory=frozenset)
    has_tasks: bool = False
    has_files: bool = False
    has_role_labels: bool = False
    has_ranks_per_host: bool = False
    hosts: frozenset[str] = field(default_factory=frozenset)
    near_ns: int | None = None

    @classmethod
    def of(cls, sample: bytes) -> "Layout":
        """What the sample shows."""
        lines = [
            plain(line.decode("utf-8", "replace"))
            for line in sample.split(b"\n")[:_MAX_LINES]
            if b"\r" not in line[:-1]
        ]
        lines = [line.rstrip("\r") for line in lines]
        width, starts = _wrapping(lines)
        filled = [line for line in lines if line]
        return cls(
            wrap_width=width,
            starts=starts,
            has_tasks=_is_usual(_TASK, map(without_stamp, filled), len(filled)),
            has_files=_is_usual(_GREP, filled, len(filled)),
            has_role_labels=_has_role_labels(filled),
            has_ranks_per_host=_has_ranks_per_host(filled),
            hosts=_hosts(filled),
            near_ns=first_dated_ns("\n".join(lines)),
        )

    def is_start(self, text: str) -> bool:
        """Whether a line begins here, rather than the rest of one that was broken."""
        return not text or bool(_START.match(text)) or _first_word(text) in self.starts or _is_row(text)


def _is_usual(label: re.Pattern[str], lines: Iterable[str], count: int) -> bool:
    return count > 0 and sum(bool(label.match(line)) for line in lines) >= _LABEL_SHARE * count


def _has_role_labels(lines: list[str]) -> bool:
    found = [pair for line in lines if line.count("[rank") > 1 and (pair := _TWO_RANKS.search(line))]
    return any(pair[1] != pair[2] for pair in found) and not any(_TORCH_FIRST.match(line) for line in lines)


def _has_ranks_per_host(lines: list[str]) -> bool:
    """Whether torch's lines are all of higher ranks than a logger's: those of a host that is not the first."""
    logged = [int(found[1]) for line in lines if "[RANK:" in line and (found := _LOGGER_RANK.search(line))]
    own = [int(found[1]) for line in lines if (found := _TORCH_RANK.match(line))] if logged else []
    return bool(own) and max(logged) < min(own)


def plain(text: str) -> str:
    """Without the terminal's colours, also where their escape character was lost on the way, and the echo of Ctrl-C."""
    while text.startswith("^C"):
        text = text[2:]
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "[0m" in text or "[39m" in text:
        text = _BARE_ANSI.sub("", text)
    return text


def _is_row(text: str) -> bool:
    """A row of a table (`kubectl get pods`) has columns, and rows of one width."""
    return len(re.split(r" {2,}", text.strip())) >= _COLUMNS


def _first_word(text: str) -> str:
    word = text[:24].lstrip(" ").split(" ", 1)[0]
    blanks = "  " if text.startswith("  ") else " " if text.startswith(" ") else ""
    return blanks + re.sub(r"\d+", "9", word)[:16]


def _wrapping(lines: list[str]) -> tuple[int | None, frozenset[str]]:
    """The longest line's length, if lines that long go on in the next one, which does not begin like any other line."""
    width = max(map(len, lines), default=0)
    if not _MIN_WIDTH <= width <= _MAX_WIDTH:
        return None, frozenset()
    before = ["", *lines[:-1]]
    starts = frozenset(_first_word(line) for last, line in zip(before, lines, strict=True) if len(last) < width - 1)
    layout = Layout(starts=starts)
    full = {line: after for line, after in zip(lines, [*lines[1:], ""], strict=True) if len(line) == width}
    broken = [line for line, after in full.items() if not layout.is_start(after)]
    if 2 * len(broken) < len(full):
        return None, frozenset()
    is_torch = any(_START.match(line) for line in broken)
    enough = len(broken) >= 2 or (len(broken) == 1 and width in _USUAL_WIDTHS and is_torch)
    return (width, starts) if enough else (None, frozenset())


def _hosts(lines: list[str]) -> frozenset[str]:
    """Names in front of most lines, if they look like hosts': with a digit or a dot."""
    names = Counter(_host_labels(lines))
    count = sum(names.values())
    if count < max(1, _LABEL_SHARE * len(lines)) or len(names) > max(_FEW_HOSTS, count // 2):
        return frozenset()
    return frozenset(names)


def _host_labels(lines: list[str]) -> Iterator[str]:
    for line in lines:
        label = _HOST.match(line)
        if label and not (label[1].isdigit() or _FILE.search(label[1]) or _NO_HOST.fullmatch(label[1])):
            yield label[1]
