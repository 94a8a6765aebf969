"""Which ranks left their own path: what followed the same calls before is not the call they wait in now.

In: a head and the recording it is from. Out: a `Course`: whether the rank kept its path, and how it departed.

A job repeats its steps, with now and then a step that logs or evaluates; so the calls just before are looked up in the
rank's own past, as long a run of them as occurs there more than once, and what came next each time is its path.
"""

from dataclasses import dataclass

from ncclprobe.analyze.agreement import comparable
from ncclprobe.analyze.heads import Head
from ncclprobe.analyze.periods import continuations
from ncclprobe.model.collectives import Recording
from ncclprobe.model.report import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """`is_kept`: the call waited in is one that came next before. `departure` is None where it did not, or unknown."""

    is_kept: bool = False
    departure: Cause | None = None


def course_of(head: Head, recording: Recording) -> Course:
    """`collective-skipped` when the call came soon after the expected one before, else `collective-extra`."""
    *history, waited_in = _tokens(recording, head.call.entry + 1)
    ways = continuations(history)
    if not ways:
        return Course()
    if any(way[0] == waited_in for way in ways):
        return Course(is_kept=True)
    is_skip = all(waited_in in way for way in ways)
    return Course(departure=Cause.COLLECTIVE_SKIPPED if is_skip else Cause.COLLECTIVE_EXTRA)


def _tokens(recording: Recording, count: int) -> list[int]:
    """One number per call, in the order the rank issued them: its group, and what members must agree on."""
    numbers: dict[object, int] = {}
    keys = [comparable(signature) for signature in recording.signatures]
    rows = zip(recording.group_of[:count], recording.signature_of[:count], strict=True)
    return [numbers.setdefault((group, keys[signature]), len(numbers)) for group, signature in rows]
