"""Ranks that wait for a lock in C, told from the line of user code that they are at: such a wait has no frame.

In: positions, and the text of a frame's line. Out: the positions; those at a line that takes a lock say so.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from ncclprobe.analyze.phases import Phase, Place
from ncclprobe.analyze.positions import Position
from ncclprobe.model.frames import Frame

# Of a `with` only one that does nothing else on its line: no second item, no body.
_TAKES_LOCK = re.compile(
    r"\.acquire\(|\b(?:flock|lockf)\("
    r"|^with [\w.\[\]]*(?:lock|mutex|semaphore|condition)\w*(?:\(\)|\[\w+\])?(?: as \w+)?:\s*(?:#|$)",
    re.IGNORECASE,
)


def tell_locks(positions: dict[int, Position], line_of: Callable[[int, Frame], str | None]) -> dict[int, Position]:
    """`line_of(rank, frame)`: the source of the frame's line, None where it was not read."""
    return {rank: _told(position, line_of) for rank, position in positions.items()}


def _told(position: Position, line_of: Callable[[int, Frame], str | None]) -> Position:
    top = next((frame for frame in position.stack if not frame.is_native), None)
    if position.phase is not Phase.PYTHON or top is None or top != position.user_frame or position.is_idle is False:
        return position
    line = line_of(position.rank, top)
    takes_lock = line is not None and _TAKES_LOCK.search(line) is not None
    return replace(position, place=Place(Phase.LOCK, top)) if takes_lock else position
