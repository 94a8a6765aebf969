"""What is kept of many events and lines."""

from collections import Counter

import pytest

from ncclprobe.model.log import Aborted, LogFact, PeerLost, StoreWait, WorkTimeout
from ncclprobe.parse.log import keeping
from ncclprobe.parse.log.keeping import KeptEvents, Voices
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.prefix import Claim, Said
from ncclprobe.parse.log.ranks import Claims

FLOOD = PeerLost(peer="node01:1", reason="Broken pipe", is_store=True)


def line(number: int, rank: "int | None" = 0, text: str = "x", when_ns: "int | None" = None) -> LogLine:
    return LogLine(number=number, text=text, rank=rank, when_ns=when_ns)


def kept(*facts: "tuple[LogFact, int | None]") -> tuple[list[int], Counter[str]]:
    """Lines of the events that stay, and what was left out; each fact on a line of its own, beside its rank."""
    events = KeptEvents(Claims())
    for number, (fact, rank) in enumerate(facts, start=1):
        events.keep(line(number, rank).event(fact))
    return [event.line for event in events.events()], events.left_out


def test_a_flood_keeps_its_first_and_last_lines() -> None:
    lines, left_out = kept(*[(FLOOD, 3)] * 10_000)
    assert lines == [*range(1, 21), *range(9_981, 10_001)]
    assert left_out == {"PeerLost": 9_960}


def test_each_speaker_and_kind_has_its_own_share() -> None:
    lines, left_out = kept(*[(FLOOD, 3)] * 100, (Aborted(), 3), *[(FLOOD, 4)] * 10)
    assert lines[-11:] == list(range(101, 112))
    assert left_out == {"PeerLost": 60}


def test_all_of_a_large_job_is_kept() -> None:
    facts = [(StoreWait(rank=rank, world_size=4096, joined=1), rank) for rank in range(4096)]
    lines, left_out = kept(*facts)
    assert len(lines) == 4096
    assert not left_out


def test_the_number_of_events_is_bounded_and_the_last_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MAX_EVENTS", 100)
    fact = WorkTimeout(seq=1, op="send", numel_in=None, numel_out=None, timeout_ms=None, ran_ms=None)
    lines, left_out = kept(*[(FLOOD, 0)] * 50, *[(fact, rank) for rank in range(500)], *[(FLOOD, 0)] * 50)
    assert len(lines) <= 100
    assert lines[-1] == 600
    assert left_out.total() == 600 - len(lines)


def test_claims_become_ranks_when_all_was_seen() -> None:
    events = KeptEvents(Claims())
    events.hear(Said(line=line(1, None), claim=Claim(kind="task", number=6)))
    events.keep(line(1, None).event(Aborted()))
    assert [event.rank for event in events.events()] == [6]


def test_voices() -> None:
    claims = Claims()
    voices = Voices(claims)
    for number, (rank, text, when_ns, claim) in enumerate(
        [
            (2, "first", 5, None),
            (None, "label", None, Claim(kind="task", number=2)),
            (None, "nobody", None, None),
            (2, "  ", None, None),
            (2, "last \x1b words", None, None),
        ],
        start=1,
    ):
        voices.hear(Said(line=line(number, rank, text, when_ns), claim=claim))
    nobody, two = voices.speakers()
    assert (nobody.rank, nobody.lines, nobody.last_words) == (None, 1, "nobody")
    assert (two.rank, two.lines, two.last_line, two.last_words, two.last_ns) == (2, 3, 5, "last \ufffd words", 5)
