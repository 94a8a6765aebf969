"""What the program says that it is doing, and that a rank is done.

In: lines. Out: `Activity`, of a run of lines about the same work only the first and the last, all at the log's end; and
`Left` where a rank says of itself that it is through.

Bars of several ranks may interleave without a word of who wrote them: a line goes to the bar that it continues.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from ncclprobe.model.log import TRAINING, Activity, Left, LogEvent
from ncclprobe.parse.log.activities import Doing, doing, step_of
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.phase_words import EVALUATION
from ncclprobe.parse.text import clean

NEEDLES = (
    b"aving",
    b"Saved",
    b"saved",
    b"riting",
    b"rote ",
    b"onsolidat",
    b"save_pretrained",
    b"oading checkpoint",
    b"Loading",
    b"okenizing",
    b"unning tokenizer",
    b"Map (num_proc",
    b"Map:",
    b"Filter",
    b"Generating",
    b"Downloading",
    b"uilding",
    b"Evaluating",
    b"evaluating",
    b"Evaluation",
    b"alidation",
    b"alidating",
    b"cuda graph",
    b"CUDA graph",
    b"ninja",
    b"ompiling",
    b"retry loop",
    b"wandb: ",
    b"exhausted",
    b"exiting",
    b"destroy_process_group",
    b"raining done",
    b"finished",
    b"no more ",
    b"should_stop",
    b"teardown",
    b"nitializing distributed",
    b"(Pdb",
    b"ipdb> ",
    b"[y/N]",
    b"(y/n)",
)
"""Steps and bars are too many to be told from the middle of a long log: those at its ends are heard anyway."""
BLOCK_NEEDLES: tuple[bytes, ...] = ()

_MAX_SPEAKERS = 8_192
_MAX_FIRST = 20
_MAX_LAST = 60
_MAX_TEXT = 200
_MAX_HEAD = 500
_OPEN_BARS = 8
_LABELS = re.compile(r"^\[rank\d+\]:? ?(?!\[)")
_GLOBAL_RANK = re.compile(r"\bGLOBAL_RANK: (\d{1,7})")
_CODE = re.compile(r"^ {4,}\w")
_LEAVING = re.compile(
    r"\bdestroy_process_group\(\)(?! was not called)|\bprocess group destroyed\b"
    r"|\b(?:dataset|data ?loader|data|iterator|loader) (?:is )?exhausted\b"
    r"|\b(?:no more|ran out of) (?:batches|data|samples)\b"
    r"|\btraining (?:is )?(?:done|complete[d]?|finished)\b|\bfinished training\b"
    r"|\b(?:done|finished)\b.{0,20}\bexiting\b"
    r"|\bexiting (?:normally|now|cleanly)|\bTotal number of iterations: \d",
    re.IGNORECASE,
)
_LEAVING_WORDS = (
    "destroy",
    "exhausted",
    "no more",
    "ran out",
    "done",
    "finish",
    "complet",
    "exit",
    "number of iterations",
)
_RANK_LEAVING = re.compile(
    r"^\W*(?:\w+\W+){0,3}?\brank[ :=]{0,2}(?P<rank>\d{1,7})\]?:? "
    r"(?:is |has |all )?(?:finished|done|completed|exiting|exits|exited normally)\b",
    re.IGNORECASE,
)
_BAD_END = re.compile(r"\b(?:error|fail(?:ed|ure)?|exception|abort(?:ed)?|timed? ?out)\b", re.IGNORECASE)


class _Run:
    """Lines about the same piece of work."""

    def __init__(self, line: LogLine, what: Doing) -> None:
        self.first = self.last = (line, what)

    def goes_on_with(self, what: Doing) -> bool:
        """Whether the line says the same, or shows the same bar further on."""
        before = self.last[1]
        if (before.phase, before.label, before.is_done) != (what.phase, what.label, what.is_done):
            return False
        if before.progress is None or what.progress is None:
            return before.progress is None and what.progress is None
        return before.progress[1] == what.progress[1] and before.progress[0] <= what.progress[0]

    @property
    def done(self) -> int:
        """How far it is; -1 without a number."""
        progress = self.last[1].progress
        return progress[0] if progress else -1

    def events(self) -> Iterator[LogEvent]:
        """The first and the last line, when these are two."""
        for line, what in (self.first, self.last) if self.first[0] is not self.last[0] else (self.first,):
            progress = what.progress if what.progress and what.progress[1] else None
            text = clean(line.text.strip(), _MAX_TEXT)
            yield line.event(Activity(phase=what.phase, text=text, progress=progress, step=step_of(text)))


class _Speaker:
    """The runs of one writer: of many, those at both ends."""

    def __init__(self) -> None:
        self.early: list[_Run] = []
        self.late: deque[_Run] = deque(maxlen=_MAX_LAST)
        self.recent: deque[_Run] = deque(maxlen=_OPEN_BARS)

    def add(self, line: LogLine, what: Doing) -> None:
        """To the open run that it continues, of bars the one furthest on; else it is the first of a new one."""
        open_runs = [run for run in reversed(self.recent) if run.goes_on_with(what)]
        is_bar = what.progress is not None
        if open_runs and (is_bar or self.recent[-1] is open_runs[0]):
            max(open_runs, key=lambda run: run.done).last = (line, what)
        else:
            run = _Run(line, what)
            self.recent.append(run)
            (self.early if len(self.early) < _MAX_FIRST else self.late).append(run)

    def events(self) -> Iterator[LogEvent]:
        """Of all runs that were kept."""
        for run in (*self.early, *self.late):
            yield from run.events()


class RECOGNIZER:
    """Keeps what each speaker was doing until the log ends."""

    def __init__(self) -> None:
        self._speakers: dict[tuple[str, int | None], _Speaker] = {}
        self._left: dict[tuple[str, int | None], LogEvent] = {}

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """Nothing yet: whether a rank that is done goes on after all, and which line is the last, shows at the end."""
        text = _LABELS.sub("", line.text)
        if _CODE.match(text):
            return
        what = doing(text)
        if what is not None:
            self._add(line, text, what)
        left = _leaving(line, text)
        if left is not None:
            self._left.setdefault(_writer(line, left.rank), left)
        yield from ()

    def end(self) -> Iterator[LogEvent]:
        """All of it, in the order of lines."""
        events = [event for speaker in self._speakers.values() for event in speaker.events()]
        events.extend(self._left.values())
        self._speakers.clear()
        self._left.clear()
        yield from sorted(events, key=lambda event: event.line)

    def _add(self, line: LogLine, text: str, what: Doing) -> None:
        named = _GLOBAL_RANK.search(text) if "GLOBAL_RANK" in text else None
        if named:
            line = replace(line, rank=int(named[1]))
        if what.phase in (TRAINING, EVALUATION):
            self._left.pop(_writer(line, line.rank), None)  # the end of an epoch, not of its work
        key = (line.speaker, line.rank)
        if key in self._speakers or len(self._speakers) < _MAX_SPEAKERS:
            self._speakers.setdefault(key, _Speaker()).add(line, what)


def _writer(line: LogLine, rank: int | None) -> tuple[str, int | None]:
    """A rank, whatever labels stand before it; lines without one are told apart by their labels."""
    return ("", rank) if rank is not None else (line.speaker, None)


def _leaving(line: LogLine, text: str) -> LogEvent | None:
    """A good end that a rank says of itself; of lines that name none, only the file may show whose it is."""
    head = text[:_MAX_HEAD]
    low = head.lower()
    if not any(word in low for word in _LEAVING_WORDS):
        return None
    match = _RANK_LEAVING.match(head)
    rank = int(match["rank"]) if match else line.rank
    if not (match or _LEAVING.search(head)) or _BAD_END.search(head) or "ProcessGroup" in head:
        return None
    return line.event(Left(how=clean(text.strip(), _MAX_TEXT)), rank=rank)
