"""How a log looks: the width at which a terminal broke its lines, the labels in front of them, its year.

In: a sample of the log, both ends of it. Out: `Layout`.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ncclprobe.parse.log.clock import first_dated_ns

_MIN_WIDTH, _MAX_WIDTH = 40, 400
_USUAL_WIDTHS = frozenset({80, 100, 120, 132, 140, 150, 160, 180, 200, 240})
_MAX_LINES = 20_000
_LABEL_SHARE = 0.5
_FEW_HOSTS = 8

_TASK = re.compile(r" {0,5}\d{1,5}: ?")
_HOST = re.compile(r"(?=[\w.-]*[\d.])([A-Za-z0-9][\w.-]{0,252}): ?")
_NO_HOST = re.compile(
    r"(?:step|epoch|iter|batch|loss|lr|train|val|eval|rank|gpu|layer|stage|line)[\d._-]*", re.IGNORECASE
)
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

    `has_tasks`: lines have srun's labels (`3: `). `hosts`: names in pdsh's labels. `near_ns`: a dated line's time.
    """

    wrap_width: int | None = None
    starts: frozenset[str] = field(default_factory=frozenset)
    has_tasks: bool = False
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
            has_tasks=bool(filled) and sum(bool(_TASK.match(line)) for line in filled) >= _LABEL_SHARE * len(filled),
            hosts=_hosts(filled),
            near_ns=first_dated_ns("\n".join(lines)),
        )

    def is_start(self, text: str) -> bool:
        """Whether a line begins here, rather than the rest of one that was broken."""
        return not text or bool(_START.match(text)) or _first_word(text) in self.starts


def plain(text: str) -> str:
    """Without the terminal's colours, also where their escape character was lost on the way, and the echo of Ctrl-C."""
    while text.startswith("^C"):
        text = text[2:]
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "[0m" in text or "[39m" in text:
        text = _BARE_ANSI.sub("", text)
    return text


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
