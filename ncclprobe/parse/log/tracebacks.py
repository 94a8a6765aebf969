"""Python tracebacks in a log, of each speaker on its own.

In: lines. Out: one `Raised` for each chain of exceptions: the one raised first, which the others follow from.

A traceback is plain, or each of its lines is decorated (`ERROR 09-25 00:17:19 [x.py:671]   File ...`, the `  | ` of
exception groups, the indent of torchelastic's table): the first frame shows the decoration. Its head or end may be cut.
"""

import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ncclprobe.model.frames import Frame
from ncclprobe.model.log import Died, LogEvent, Raised
from ncclprobe.parse.log.asides import NEEDLES as ASIDE_NEEDLES
from ncclprobe.parse.log.asides import Aside, Asides
from ncclprobe.parse.log.failures import classify
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.text import clean

NEEDLES = (
    b"Traceback (most recent call last)",
    b'  File "',
    b"During handling of the above exception",
    b"The above exception was the direct cause",
    b"terminated with the following error",
    b"DataLoader worker (pid",
    b'"py_callstack"',
    b"(local_rank:",
    *ASIDE_NEEDLES,
)
BLOCK_NEEDLES = (b"Traceback (most recent call last)", b'  File "')

_MAX_OPEN = 1_024  # speakers with an unfinished traceback
_MAX_FRAMES = 200
_MAX_NAME = 256
_MAX_PREFIX = 200
_MAX_MESSAGE = 500
_MAX_FOREIGN = 40  # lines of something else before a traceback counts as cut
_MAX_LINE = 4_000
_HEADER = "Traceback (most recent call last)"
_FRAME = re.compile(r'File "([^"]{1,1000})", line (\d{1,9})(?:, in (.+?))?\s*$')
_RICH_FRAME = re.compile(r"^[│|] (/?[^\s:]{1,500}\.py):(\d{1,9}) in (\S+)")
_CHAIN = re.compile(r"^(During handling of the above exception|The above exception was the direct cause)")
_ERROR = re.compile(r"\b(?:ERROR|CRITICAL|FATAL|Error|Exception|exception|failed)\b")
_OUTER = re.compile(r"^\[rank\d+\]:(?: |$)")
_KNOWN_END = r"(?:Error|Exception|Warning|Exit|Interrupt|Iteration|Timeout|Group|Failure|Empty|Full|Abort|Fault)"
# `pkg.mod.Name: text`, `Name`, `RayTaskError(ValueError): text`; other names only when they cannot be words of a log.
_EXCEPTION = re.compile(
    rf"^((?:[A-Za-z_][\w<>]*\.)*[A-Za-z_]\w*{_KNOWN_END}(?:\([\w.]+\))?|(?:[A-Za-z_][\w<>]*\.)+[A-Z]\w*"
    r"|[A-Z][a-z0-9]+[A-Z]\w*)(?::(?: (.*))?)?$"
)
_WRAPPERS = re.compile(r"ExceptionGroup|ProcessRaisedException|RayTaskError|RemoteTraceback")
_WRAPPED = re.compile(r"^Caught \w+ in (DataLoader worker process|replica|pin memory thread)")
_WEAK = re.compile(r"(^|\.)(Empty|Full|Stop(Async)?Iteration|KeyError|AttributeError|ImportError|ModuleNotFoundError)$")
_SPAWNED = re.compile(r"^-- Process (\d{1,6}) terminated with the following error")
_TABLE_RANK = re.compile(r"^\s*rank\s*: (\d{1,7}) \(local_rank: (\d{1,5})\)")
_RAY_TASK = re.compile(r"\(pid=(\d{1,9}), ip=([\w.:-]{1,100})")
_KILLED_WORKER = re.compile(r"DataLoader worker \(pid (\d{1,9})\) is killed by signal: Killed")
_RANK_IN_TEXT = re.compile(r"in store based barrier on rank: (\d{1,7})")


class _Traceback:
    """One chain of exceptions of one speaker, while its lines come in."""

    def __init__(self, line: LogLine, who: dict[str, Any]) -> None:
        self.first_line = line
        self.who = who
        self.has_header = False
        self.has_label = False  # the head stands behind words that the other lines lack
        self.last_number = line.number
        self.decoration: re.Pattern[str] | None = None
        self.frames: deque[Frame] = deque(maxlen=_MAX_FRAMES)
        self.exception = ""
        self.message = ""
        self.exception_line: LogLine | None = None
        self.foreign = 0
        self.more = 0  # lines of the message that may still follow
        self.is_nested = False  # what follows is the cause of what was read
        self.is_chained = False  # what follows came after what was read
        self.is_group = False  # more exceptions of one group may follow, each raised on its own
        self.cause: tuple[LogLine, Raised] | None = None
        self.aside = Aside.NONE

    def ends_before(self, number: int) -> bool:
        """Whether only its exception is missing, and the line of this number is the next."""
        return bool(self.frames) and not self.exception and number - self.last_number == 1

    def undecorated(self, text: str) -> str:
        """The line as Python printed it; the decoration's digits (time, line number) may differ."""
        match = self.decoration.match(text) if self.decoration else None
        return text[match.end() :] if match else text

    def learn_decoration(self, prefix: str) -> None:
        """`prefix` is what stands before the two blanks of a frame."""
        words = prefix[:_MAX_PREFIX].rstrip()
        blanks = len(prefix) - len(words)
        pattern = re.sub(r"\d+", r"\\d+", re.escape(words))
        self.decoration = re.compile(rf"{pattern}\s{{0,{blanks}}}") if 0 < len(prefix) <= _MAX_PREFIX else None

    def add_frame(self, function: str | None, file: str, line: str) -> None:
        """From the outermost inward, as Python prints them."""
        name = clean(function or "<module>", _MAX_NAME)
        self.frames.append(Frame(name, clean(file), int(line) or None))

    def raised(self) -> tuple[LogLine, Raised] | None:
        """The exception read last and the line to cite; None when nothing was."""
        if not self.exception and not self.frames:
            return None
        stack = tuple(reversed(self.frames))
        kind = classify(self.exception, self.message, stack)
        fact = Raised(exception=self.exception, message=self.message, failure=kind, stack=stack)
        return self.exception_line or self.first_line, fact

    def restart(self) -> None:
        """Another traceback of the chain begins; of the two, the cause is kept."""
        done = self.raised()
        is_weaker = self.cause is not None and _WEAK.search(self.cause[1].exception)
        if done is not None and not self.is_nested and (self.cause is None or is_weaker):
            self.cause = done
        self.frames.clear()
        self.exception, self.message, self.exception_line = "", "", None
        self.foreign = self.more = 0
        self.is_nested = self.is_chained = False

    def result(self) -> tuple[LogLine, Raised] | None:
        """The first exception of the chain, unless a handler only looked something up."""
        last, self.is_nested = self.raised(), False
        if self.cause is None or (last is not None and last[1].exception and _WEAK.search(self.cause[1].exception)):
            return last
        return self.cause


class RECOGNIZER:
    """Joins the lines of tracebacks by speaker."""

    def __init__(self) -> None:
        self._open: dict[str, _Traceback] = {}
        self._table: dict[str, dict[str, Any]] = {}
        self._error: LogLine | None = None
        self._asides = Asides()

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """A traceback is told when the first line after it comes."""
        text = _OUTER.sub("", line.text[:_MAX_LINE])
        if line.text.startswith('{"message"'):
            yield from _error_file(line)
            return
        self._note_rank(line.speaker, text)
        speaker = self._speaker_of_end(line, text)
        before = self._open.get(speaker)
        if before is not None and not _takes(before, line, text):
            del self._open[speaker]
            yield from _events(before)
        if line.speaker not in self._open and (_HEADER in text or _FRAME.search(text)):
            yield from self._begin(line, text)
        self._asides.see(line.speaker, text)
        if line.rank is not None and _ERROR.search(text):
            self._error = line

    def end(self) -> Iterator[LogEvent]:
        """Tracebacks that the end of the log cut, or that nothing followed."""
        for traceback in self._open.values():
            yield from _events(traceback)
        self._open.clear()

    def _speaker_of_end(self, line: LogLine, text: str) -> str:
        """`RuntimeError: [Rank 1] ...` seems to be another's than the nameless lines before it."""
        if line.speaker in self._open or not self._open or not _EXCEPTION.match(text):
            return line.speaker
        near = (speaker for speaker, found in self._open.items() if found.ends_before(line.number))
        return next(near, line.speaker)

    def _note_rank(self, speaker: str, text: str) -> None:
        """The launcher's table names the rank whose traceback it prints; a spawned one is known by its number."""
        match = _TABLE_RANK.match(text)
        if match and len(self._table) < _MAX_OPEN:
            self._table[speaker] = {"rank": int(match[1]), "local_rank": int(match[2])}

    def _begin(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        if len(self._open) >= _MAX_OPEN:
            oldest = next(iter(self._open))
            yield from _events(self._open.pop(oldest))
        in_table = re.match(r"\s*traceback\s*: ", text) is not None
        who = self._table.pop(line.speaker, {}) if in_table else self._signed(line, text)
        traceback = self._open[line.speaker] = _Traceback(line, who)
        traceback.aside = self._asides.before(line.speaker)
        _takes(traceback, line, text)

    def _signed(self, line: LogLine, text: str) -> dict[str, Any]:
        """Loggers write an error and the traceback below it in one piece; only the first line says whose it is."""
        error = self._error
        is_bare = line.rank is None and line.pid is None and line.local_rank is None and text.startswith(_HEADER)
        is_below = error is not None and error.number == line.number - 1
        return {"rank": error.rank} if error is not None and is_bare and is_below else {}


def _takes(traceback: _Traceback, line: LogLine, text: str) -> bool:
    """Whether the line belongs to the traceback, which then has it."""
    traceback.last_number = line.number
    if _HEADER in text:
        return _takes_header(traceback, text)
    frame = _FRAME.search(text) or _RICH_FRAME.match(traceback.undecorated(text))
    if frame:
        return _takes_frame(traceback, text, frame)
    plain = traceback.undecorated(text)
    if _CHAIN.match(plain):
        traceback.is_chained = True
        return True
    if traceback.exception:
        return _takes_after(traceback, plain)
    return _takes_end(traceback, line, plain)


def _takes_header(traceback: _Traceback, text: str) -> bool:
    is_first = not traceback.has_header and not traceback.frames
    if not is_first:
        is_next_leaf = traceback.is_group and text.lstrip().startswith("|")
        if not (traceback.is_chained or traceback.is_nested or is_next_leaf):
            return False
        traceback.restart()
    traceback.has_header = True
    position = text.index(_HEADER)
    prefix = text[:position].removesuffix("Original ").removesuffix("Exception Group ")
    traceback.has_label = traceback.has_label or bool(prefix.strip())
    traceback.learn_decoration(prefix)
    return True


def _takes_frame(traceback: _Traceback, text: str, frame: re.Match[str]) -> bool:
    if traceback.exception:
        if not traceback.is_nested:
            return traceback.more > 0 or not traceback.has_header  # code that the message of a compiler quotes
        traceback.restart()
    if not traceback.frames and frame.re is _FRAME:
        traceback.learn_decoration(text[: max(0, frame.start() - 2)])
    traceback.foreign = 0
    file, number, function = frame.groups()
    traceback.add_frame(function, file, number)
    return True


def _takes_end(traceback: _Traceback, line: LogLine, plain: str) -> bool:
    """The exception itself, a line of code, or something that another writer put between."""
    match = None if plain[:1].isspace() else _EXCEPTION.match(plain.rstrip())
    if match is None:
        is_code = not plain.strip() or plain[:1] in " \t│╭╰|+"
        traceback.foreign += not is_code
        return traceback.foreign <= _MAX_FOREIGN
    name, message = match[1], clean((match[2] or "").strip(), _MAX_MESSAGE)
    traceback.exception, traceback.message, traceback.exception_line = clean(name, _MAX_NAME), message, line
    traceback.is_nested = bool(_WRAPPERS.search(name) or _WRAPPED.match(message))
    traceback.is_group = traceback.is_group or "ExceptionGroup" in name
    traceback.more = 3 if not message or message.endswith(":") or message.startswith("NCCL error") else 0
    task = _RAY_TASK.search(message) if traceback.is_nested else None
    if task:
        traceback.who |= {"pid": int(task[1]), "host": task[2]}
    return True


def _takes_after(traceback: _Traceback, plain: str) -> bool:
    """Lines after the exception: more of its message, or the words that lead to the next traceback."""
    spawned = _SPAWNED.match(plain)
    if spawned:
        traceback.is_nested = True
        traceback.who |= {"local_rank": int(spawned[1])}
        return True
    if not plain.strip() or plain.startswith(('"""', "  +", "    +", "╰")):
        return True
    if traceback.is_chained or traceback.is_nested:
        traceback.foreign += 1
        return traceback.foreign <= _MAX_FOREIGN
    if traceback.more <= 0 or not any(map(str.isalnum, plain)):
        return False
    traceback.more -= 1
    traceback.message = clean(f"{traceback.message} {plain.strip()}".strip(), _MAX_MESSAGE)
    return True


def _events(traceback: _Traceback) -> Iterator[LogEvent]:
    """A stack without an exception is told only where a head says that it is a traceback."""
    found = traceback.result()
    if found is None or traceback.aside is Aside.IGNORED or not (traceback.has_header or found[1].exception):
        return
    line, fact = found[0], replace(found[1], is_aside=traceback.aside is Aside.THREAD)
    if traceback.has_label and line.rank is None and line.pid is None:
        line = replace(line, number=traceback.first_line.number)  # where a label stands that names the process
    who = dict(traceback.who)
    match = _RANK_IN_TEXT.search(fact.message)
    if match:
        who["rank"] = int(match[1])
    if line.when_ns is None:
        who["when_ns"] = traceback.first_line.when_ns
    yield line.event(fact, **who)
    worker = _KILLED_WORKER.search(fact.message)
    if worker:
        reason = "a worker of the data loader was killed"
        yield line.event(Died(signal=9, reason=reason), **(who | {"pid": int(worker[1])}))


def _error_file(line: LogLine) -> Iterator[LogEvent]:
    """`error.json` of torchelastic: `{"message": {"message": ..., "extraInfo": {"py_callstack": ..., ...}}}`."""
    try:
        message = json.loads(line.text)["message"]
        callstack, stamp = message["extraInfo"]["py_callstack"], message["extraInfo"].get("timestamp")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    reader = RECOGNIZER()
    when_ns = int(stamp) * 1_000_000_000 if re.fullmatch(r"\d{9,11}", str(stamp)) else line.when_ns
    events: list[LogEvent] = []
    for text in str(callstack).splitlines()[:2_000]:
        part = LogLine(
            number=line.number, text=text, rank=line.rank, host=line.host, pid=line.pid, when_ns=when_ns
        )  # the file is one line
        events.extend(() if text.startswith('{"message"') else reader.feed(part))
    yield from events
    yield from reader.end()
