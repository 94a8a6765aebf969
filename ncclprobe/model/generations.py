"""Communicators that had one address in turn.

In: the events of a process, in order. Out: a number for each, from 0, that tells the communicators of an address apart.
"""

from dataclasses import dataclass, field

from ncclprobe.model.log import CommEvent


@dataclass(slots=True)
class Generations:
    """Counts the communicators of each (host, pid, pointer): a pointer is used again after Destroy and Abort."""

    _seen: dict[tuple[str, int, str], tuple[int, str]] = field(default_factory=dict)

    def of(self, host: str, pid: int, event: CommEvent) -> int:
        """Which one, from 0, the event is about."""
        key = (host, pid, event.comm)
        number, last = self._seen.get(key, (0, ""))
        if last and begins_anew(event.event, last):
            number += 1
        self._seen[key] = (number, event.event)
        return number

    def current(self, host: str, pid: int, comm: str) -> int:
        """The latest one known; 0 where no event was seen."""
        return self._seen.get((host, pid, comm), (0, ""))[0]


def begins_anew(event: str, last: str) -> bool:
    """Whether an event is about another communicator than the event before it at the same address."""
    return event == "init-start" or (event == "init-complete" and last != "init-start")
