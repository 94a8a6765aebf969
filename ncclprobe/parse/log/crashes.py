"""The last words of a process that a signal or a C++ exception ends, as its own runtime writes them.

In: lines. Out: `Died`, and `Raised` for C++ exceptions and for the Python stack below a fatal error.

C++'s terminate, faulthandler (`Fatal Python error`), and the signal handlers of absl, glog, Open MPI and UCX. A dump on
faulthandler's timer is no crash: it is a stack, and not read here.
"""

import re
from collections.abc import Iterator

from ncclprobe.model.frames import Frame
from ncclprobe.model.log import Died, Failure, LogEvent, Raised, StoppedByLauncher
from ncclprobe.parse.log.failures import classify
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.signals import SIGNAL_WORDS, number
from ncclprobe.parse.text import clean

NEEDLES = (
    b"terminate called after throwing",
    b"terminate called without an active",
    b"libc++abi: ",
    b"  what():  ",
    b"Fatal Python error: ",
    b"Segmentation fault",
    b"Segfault encountered",
    b"Bus error",
    b"(core dumped)",
    b" received at time=",
    b" received by PID ",
    b"Caught signal ",
    b" Signal: ",
    b"SIGSEGV",
    b"SIGBUS",
)
BLOCK_NEEDLES = (b"terminate called after throwing", b"Fatal Python error: ")

_MAX_OPEN = 1_024
_NEAR = 2  # lines
_MAX_FRAMES = 200
_MAX_OTHER = 400  # lines of other threads between the fatal error and the current thread's stack
_MAX_TEXT = 500
_THROWN = re.compile(
    r"terminate called after throwing an instance of '([^']{1,300})'"
    r"|libc\+\+abi: terminating (?:due to|with) uncaught exception of type ([^:]{1,300}(?:::[^:]{1,300}){0,8})"
)
_WHAT = re.compile(r"^\s*what\(\): {1,2}(.*)")
_NO_EXCEPTION = re.compile(r"terminate called without an active exception")
_FATAL = re.compile(r"Fatal Python error: (.{1,300})")
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-fA-F]+.*\(most recent call first\):")
_FRAME = re.compile(r'^\s*File "([^"]{1,1000})", line (\d{1,9}|\?\?\?) in (.+?)\s*$')
# Each has a signal, by number or name, and perhaps a pid.
_CAUGHT = (
    re.compile(r"\*\*\* (?P<signal>SIG[A-Z]+) received at time=\d+"),
    re.compile(r"\*\*\* (?P<signal>SIG[A-Z]+) \(@0x[0-9a-f]+\) received by PID (?P<pid>\d{1,9})"),
    re.compile(r"(?:\[[\w.-]+:(?P<pid>\d{1,9})\S*\] )?Caught signal (?P<signal>\d{1,2}) \("),
    re.compile(r"\[[\w.-]+:(?P<pid>\d{1,9})\] Signal: [A-Za-z -]+ \((?P<signal>\d{1,2})\)"),
    re.compile(r"^!+ (?P<signal>Seg)fault encountered !+"),
    re.compile(rf"^(?P<signal>{SIGNAL_WORDS})(?: \(core dumped\)|\.)?$"),
)
_HINTS = ("terminat", "Fatal Python", "SIG", "ignal", "fault", "Bus error", "Aborted", "Killed", "Floating", "Illegal")
_SIGTERM = 15


class RECOGNIZER:
    """Joins `terminate called` with its `what()`, and a fatal error with the stack below it."""

    def __init__(self) -> None:
        self._thrown: dict[str, tuple[LogLine, str]] = {}
        self._fatal: dict[str, _Fatal] = {}

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """A C++ exception is told with its text, or when something else follows."""
        text = line.text[:4_000]
        yield from self._thrown_before(line, text)
        yield from self._fatal_before(line, text)
        if any(hint in text for hint in _HINTS):
            yield from self._begun(line, text)

    def end(self) -> Iterator[LogEvent]:
        """Exceptions whose text never came, and stacks that the end cut."""
        for line, name in self._thrown.values():
            yield line.event(_raised(name, ""))
        for fatal in self._fatal.values():
            yield from fatal.events()
        self._thrown.clear()
        self._fatal.clear()

    def _begun(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        thrown = _THROWN.search(text)
        fatal = _FATAL.search(text)
        if thrown and len(self._thrown) < _MAX_OPEN:
            self._thrown[line.speaker] = (line, (thrown[1] or thrown[2]).strip())
        elif _NO_EXCEPTION.search(text):
            yield line.event(Died(signal=6, reason="terminated without an active exception"))
        elif fatal:
            if len(self._fatal) < _MAX_OPEN:
                self._fatal[line.speaker] = _Fatal(line, clean(fatal[1].strip(), _MAX_TEXT))
            yield line.event(Died(signal=number(fatal[1]), reason=f"Fatal Python error: {clean(fatal[1])}"))
        else:
            yield from _caught(line, text)

    def _thrown_before(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        what = _WHAT.match(text) if self._thrown else None
        speaker = self._speaker_of_text(line) if what else line.speaker
        if speaker in self._thrown and (what or text.strip()):
            first, name = self._thrown.pop(speaker)
            rank = first.rank if first.rank is not None or not what else line.rank
            yield first.event(_raised(name, clean(what[1].strip(), _MAX_TEXT) if what else ""), rank=rank)

    def _speaker_of_text(self, line: LogLine) -> str:
        """The text may begin with `[Rank 1]`, and then seems to be another's than the nameless line before it."""
        near = (speaker for speaker, (first, _) in self._thrown.items() if 0 <= line.number - first.number <= _NEAR)
        return line.speaker if line.speaker in self._thrown else next(near, line.speaker)

    def _fatal_before(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        fatal = self._fatal.get(line.speaker)
        if fatal is not None and not fatal.takes(text):
            del self._fatal[line.speaker]
            yield from fatal.events()


class _Fatal:
    """The stacks below `Fatal Python error`; that of the current thread counts."""

    def __init__(self, line: LogLine, words: str) -> None:
        self.line = line
        self.words = words
        self.frames: list[Frame] = []
        self.is_current = False
        self.others = 0

    def takes(self, text: str) -> bool:
        """Whether the line still belongs to the dump."""
        thread = _THREAD.match(text)
        if thread:
            is_over = self.is_current
            self.is_current = thread[1] == "Current thread"
            return not is_over
        frame = _FRAME.match(text)
        if self.is_current:
            return frame is not None and self._add(frame)
        self.others += 1
        return self.others <= _MAX_OTHER

    def _add(self, frame: re.Match[str]) -> bool:
        if len(self.frames) < _MAX_FRAMES:
            number_of_line = int(frame[2]) if frame[2].isdigit() else None
            self.frames.append(Frame(clean(frame[3], 256), clean(frame[1]), number_of_line))
        return True

    def events(self) -> Iterator[LogEvent]:
        """The stack, when there was one. An abort is what torch's watchdog ends a waiting rank with."""
        if self.frames:
            is_abort = number(self.words) == 6
            kind = Failure.COLLECTIVE_ECHO if is_abort else Failure.PYTHON
            fact = Raised(exception="Fatal Python error", message=self.words, failure=kind, stack=tuple(self.frames))
            yield self.line.event(fact)


def _raised(name: str, message: str) -> Raised:
    """Without its text, a C++ exception is taken for what torch's watchdog throws at a waiting rank: an echo."""
    kind = Failure.COLLECTIVE_ECHO if not message and "bad_alloc" not in name else classify(name, message)
    return Raised(exception=clean(name, 256), message=message, failure=kind)


def _caught(line: LogLine, text: str) -> Iterator[LogEvent]:
    match = next((found for found in (pattern.search(text) for pattern in _CAUGHT) if found), None)
    if match is None:
        return
    groups = match.groupdict()
    signal = 11 if groups["signal"] == "Seg" else number(groups["signal"])
    if signal is None:
        return
    who = {"pid": int(groups["pid"])} if groups.get("pid") else {}
    is_stop = signal == _SIGTERM
    yield line.event(StoppedByLauncher() if is_stop else Died(signal=signal, reason=clean(match[0])), **who)
