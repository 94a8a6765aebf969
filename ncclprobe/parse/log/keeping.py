"""What is kept of a log, in bounded memory: events without endless repetition, and who spoke last.

In: lines and events as they come. Out: records in the order of the log, and in words what was left out.
"""

from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ncclprobe.model.log import (
    Activity,
    GroupProgress,
    LogEvent,
    NcclWarning,
    PeerLost,
    Setting,
    Speaker,
    StoreUnreachable,
    StoreWait,
    WorldSize,
)
from ncclprobe.parse.log.prefix import Claim, Said
from ncclprobe.parse.log.ranks import Claims
from ncclprobe.parse.text import clean

MAX_EVENTS = 100_000
MAX_SPEAKERS = 20_000
_MAX_WORDS = 200
_FEW, _MANY = 20, 200
# Facts that one speaker repeats for hours, or that differ little when repeated.
_REPEATED = (PeerLost, StoreWait, StoreUnreachable, WorldSize, NcclWarning)
_OFTEN = (Activity, GroupProgress, Setting)

_Order = tuple[int, int]


@dataclass(slots=True)
class _Repeats:
    """The first and the last events of one kind from one speaker."""

    first: list[tuple[_Order, LogEvent, Claim | None]] = field(default_factory=list)
    last: deque[tuple[_Order, LogEvent, Claim | None]] = field(default_factory=deque)


class _LineClaims:
    """The claim of each line that makes one, for events that are told long after: 12 bytes a line."""

    def __init__(self) -> None:
        self._lines, self._indices = array("Q"), array("I")
        self._index: dict[Claim, int] = {}
        self._listed: list[Claim] = []

    def add(self, line: int, claim: Claim) -> None:
        """Lines come in order; of two claims in one line the first counts."""
        if not self._lines or self._lines[-1] < line:
            self._lines.append(line)
            self._indices.append(self._index.setdefault(claim, len(self._index)))

    def of(self, line: int) -> Claim | None:
        """None when the line made none."""
        place = bisect_left(self._lines, line)
        if place == len(self._lines) or self._lines[place] != line:
            return None
        return self._claims()[self._indices[place]]

    def _claims(self) -> list[Claim]:
        if len(self._listed) < len(self._index):
            self._listed = list(self._index)
        return self._listed


class KeptEvents:
    """Events, of which each speaker's repetitions are thinned out. Claims become ranks when all lines were seen."""

    def __init__(self, claims: Claims) -> None:
        self.left_out: Counter[str] = Counter()
        self._claims = claims
        self._repeats: dict[tuple[object, ...], _Repeats] = {}
        self._line_claims = _LineClaims()
        self._count = 0
        self._order = 0

    def hear(self, said: Said) -> None:
        """Remembers the line's claim for events that name the line, also much later."""
        if said.claim is not None:
            self._line_claims.add(said.line.number, said.claim)

    def keep(self, event: LogEvent) -> None:
        """Takes an event, and drops one of the same kind and speaker when there are too many."""
        claim = self._line_claims.of(event.line)
        if claim is not None:
            self._claims.see_event(claim, event)
        key = (type(event.what), event.rank, event.host, event.pid, event.local_rank, claim)
        repeats = self._repeats.get(key)
        limit = _limit(event)
        self._order += 1
        entry = ((event.line, self._order), event, claim)
        if self._count >= MAX_EVENTS and (repeats is None or not repeats.last):
            self.left_out[type(event.what).__name__] += 1
            return
        if repeats is None:
            repeats = self._repeats[key] = _Repeats()
        if len(repeats.first) < limit and self._count < MAX_EVENTS:
            repeats.first.append(entry)
            self._count += 1
        else:
            self._keep_last(repeats, entry, limit)

    def _keep_last(self, repeats: _Repeats, entry: tuple[_Order, LogEvent, Claim | None], limit: int) -> None:
        if len(repeats.last) >= limit or self._count >= MAX_EVENTS:
            repeats.last.popleft()
            self.left_out[type(entry[1].what).__name__] += 1
        else:
            self._count += 1
        repeats.last.append(entry)

    def events(self) -> list[LogEvent]:
        """In the order of lines, with the ranks that their labels claim."""
        entries = [entry for repeats in self._repeats.values() for entry in (*repeats.first, *repeats.last)]
        entries.sort(key=lambda entry: entry[0])
        return [self._ranked(event, claim) for _, event, claim in entries]

    def _ranked(self, event: LogEvent, claim: Claim | None) -> LogEvent:
        rank = _rank(self._claims, event.rank, claim, event.host, event.pid)
        return event if rank == event.rank else replace(event, rank=rank)


def _rank(claims: Claims, own: int | None, claim: Claim | None, host: str | None, pid: int | None) -> int | None:
    """What the line says itself, then what torch's lines from the same process say, then what its label claims."""
    found = (own, claims.process_rank(host, pid), claims.rank(claim))
    return next((rank for rank in found if rank is not None), None)


def _limit(event: LogEvent) -> int:
    if isinstance(event.what, _REPEATED):
        return _FEW
    return _MANY // 4 if isinstance(event.what, _OFTEN) else _MANY


@dataclass(slots=True)
class _Voice:
    lines: int = 0
    last_line: int = 0
    last_text: str = ""
    last_ns: int | None = None


class Voices:
    """Who wrote lines, and the last of each."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._voices: dict[tuple[int | None, str | None, int | None, Claim | None], _Voice] = {}

    def hear(self, said: Said) -> None:
        """Counts a line; an empty one counts for nobody."""
        line = said.line
        if not line.text or line.text.isspace():
            return
        key = (line.rank, line.host, line.pid, said.claim)
        voice = self._voices.get(key)
        if voice is None:
            if len(self._voices) >= MAX_SPEAKERS:
                return
            voice = self._voices[key] = _Voice()
        voice.lines += 1
        voice.last_line, voice.last_text = line.number, line.text
        if line.when_ns is not None:
            voice.last_ns = line.when_ns

    def speakers(self) -> Iterator[Speaker]:
        """One for each rank, host and pid, in the order of their last lines."""
        merged: dict[tuple[int | None, str | None, int | None], _Voice] = {}
        for (rank, host, pid, claim), voice in self._voices.items():
            key = (_rank(self._claims, rank, claim, host, pid), host, pid)
            merged[key] = _later(merged[key], voice) if key in merged else voice
        for (rank, host, pid), voice in sorted(merged.items(), key=lambda item: item[1].last_line):
            yield Speaker(
                rank=rank,
                host=host,
                pid=pid,
                lines=voice.lines,
                last_line=voice.last_line,
                last_words=clean(voice.last_text.strip(), _MAX_WORDS),
                last_ns=voice.last_ns,
            )


def _later(one: _Voice, other: _Voice) -> _Voice:
    early, late = sorted((one, other), key=lambda voice: voice.last_line)
    last_ns = late.last_ns if late.last_ns is not None else early.last_ns
    return _Voice(one.lines + other.lines, late.last_line, late.last_text, last_ns)
