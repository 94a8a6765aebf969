"""What a group's own history says comes next.

In: calls in order, as tokens. Out: `Expectation`, None where the history does not tell.

Training repeats itself, so what always followed the longest run of last calls that was there before comes next. Where
that went on in more than one way (some steps log, or evaluate), or the history is short, the last calls' own period
tells what most steps do; it is the weaker witness, for three equal calls in a step are a period too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

_MIN_PERIODS = 3
_MAX_PERIOD = 512
_LONGEST_RUN = 32
_SHORTEST_RUN = 4
_MIN_TIMES = 2
_SKIPS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The next call, those that come soon after it, and how that is known."""

    token: int
    later: frozenset[int]
    basis: str


def expect(history: Sequence[int]) -> Expectation | None:
    """The call that comes next if the group goes on as before."""
    ways = continuations(history)
    if ways and len({way[0] for way in ways}) == 1:
        later = frozenset.intersection(*(frozenset(way[1:]) for way in ways))
        basis = f"the group's last calls came {len(ways)} times before, always with the same one next"
        return Expectation(token=ways[0][0], later=later, basis=basis)
    period = find_period(history)
    if period is None:
        return None
    later = frozenset(history[len(history) - period + 1 :]) if period > 1 else frozenset()
    basis = f"the group's last calls repeat with period {period}"
    return Expectation(token=history[len(history) - period], later=later, basis=basis)


def find_period(history: Sequence[int]) -> int | None:
    """The shortest p for which the last calls repeat, at least three times over; None for a history without one."""
    length = len(history)
    for period in range(1, min(_MAX_PERIOD, length // _MIN_PERIODS) + 1):
        window = period * (_MIN_PERIODS - 1)
        tail = list(history[length - window :])
        if tail == list(history[length - window - period : length - period]):
            return period
    return None


def continuations(history: Sequence[int]) -> list[Sequence[int]]:
    """What followed the longest run of last calls that occurred at least twice before; empty when none did."""
    for length in range(min(_LONGEST_RUN, len(history) // _MIN_TIMES), _SHORTEST_RUN - 1, -1):
        run = history[-length:]
        ends = (at + length for at in range(len(history) - length) if history[at] == run[0])
        ways = [history[end : end + _SKIPS] for end in ends if history[end - length : end] == run]
        if len(ways) >= _MIN_TIMES:
            return ways
    return []
