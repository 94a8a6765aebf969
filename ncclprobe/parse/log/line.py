"""A line of a log without its prefixes, and what a recognizer of lines is.

In: nothing. Out: `LogLine`, which makes events of facts; `Recognizer`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from ncclprobe.model.log import LogEvent, LogFact, OpTrace
from ncclprobe.parse.log.torch_terms import group_in
from ncclprobe.parse.text import clean

MAX_QUOTE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """`text` is what the program wrote: without colours, launchers' prefixes, or breaks put in by a narrow terminal.

    torch's own prefix (`[rank3]:[E901 05:20:03.01 ProcessGroupNCCL.cpp:632] `) and NCCL's (`host:pid:tid [0] NCCL
    INFO `) are still there, for they are part of the grammar of these lines; rank, host, pid and time are taken from
    every prefix, the innermost that is global winning. `speaker` is equal for lines of one writer: what interleaves is
    told apart by it. `when_ns` as in `LogEvent`.
    """

    number: int
    text: str
    speaker: str = ""
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    when_ns: int | None = None

    def event(self, what: LogFact, **who: Any) -> LogEvent:
        """The fact as an event of this line; `who` overrides rank, local_rank, host, pid or when_ns."""
        fields: dict[str, Any] = {
            "rank": self.rank,
            "local_rank": self.local_rank,
            "host": self.host,
            "pid": self.pid,
            "when_ns": self.when_ns,
            "group": group_in(self.text) if "[PG " in self.text else None,
        }
        fields.update(who)
        return LogEvent(line=self.number, quote=clean(self.text.strip(), MAX_QUOTE), what=what, **fields)


class Recognizer(Protocol):
    """Reads one family of lines of one log; it may keep what earlier lines said.

    Its module has `NEEDLES`: the stream skips lines that hold none of any recognizer's needles (plain substrings), but
    gives all lines for a while after one that holds one of `BLOCK_NEEDLES`.
    """

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """What the line tells, together with those before."""
        ...

    def end(self) -> Iterator[LogEvent | OpTrace]:
        """What was still open when the log ended."""
        ...
