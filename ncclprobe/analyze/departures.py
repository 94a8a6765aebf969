"""Which ranks left their own path: what followed the same calls before is not the call they wait in now.

In: a head and the recording it is from. Out: how the rank departed; None where it did not, or that cannot be told.

A job repeats its steps, with now and then a step that logs or evaluates; so the calls just before are looked up in the
rank's own past, as long a run of them as occurs there more than once, and what came next each time is its path.
"""

from collections.abc import Sequence

from ncclprobe.analyze.heads import Head
from ncclprobe.analyze.timeline import comparable
from ncclprobe.model.collectives import Recording
from ncclprobe.model.report import Cause

_LONGEST_RUN = 32
_SHORTEST_RUN = 4
_MIN_TIMES = 2
_SKIPS = 16


def departure_of(head: Head, recording: Recording) -> Cause | None:
    """`collective-skipped` when the call came soon after the expected one before, else `collective-extra`."""
    *history, waited_in = _tokens(recording, head.call.entry + 1)
    ways = continuations(history)
    if not ways or any(way[0] == waited_in for way in ways):
        return None
    return Cause.COLLECTIVE_SKIPPED if all(waited_in in way for way in ways) else Cause.COLLECTIVE_EXTRA


def keeps_path(head: Head, recording: Recording) -> bool:
    """Whether the call the rank waits in is what came next before."""
    *history, waited_in = _tokens(recording, head.call.entry + 1)
    return any(way[0] == waited_in for way in continuations(history))


def continuations(history: Sequence[int]) -> list[Sequence[int]]:
    """What followed the longest run of last calls that occurred at least twice before; empty when none did."""
    for length in range(min(_LONGEST_RUN, len(history) // _MIN_TIMES), _SHORTEST_RUN - 1, -1):
        run = history[-length:]
        ends = (at + length for at in range(len(history) - length) if history[at] == run[0])
        ways = [history[end : end + _SKIPS] for end in ends if history[end - length : end] == run]
        if len(ways) >= _MIN_TIMES:
            return ways
    return []


def _tokens(recording: Recording, count: int) -> list[int]:
    """One number per call, in the order the rank issued them: its group, and what members must agree on."""
    numbers: dict[object, int] = {}
    keys = [comparable(signature) for signature in recording.signatures]
    rows = zip(recording.group_of[:count], recording.signature_of[:count], strict=True)
    return [numbers.setdefault((group, keys[signature]), len(numbers)) for group, signature in rows]
