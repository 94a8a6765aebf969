"""Parts of a log that a heading gives to a rank: `tail` of several files, and Composer's output of each rank.

In: lines in order, and paths. Out: whose part it is.
"""

import re
from dataclasses import dataclass

_TAIL = re.compile(r"==> (?P<path>\S{1,1000}) <==\s*$")
_BEGIN = re.compile(r"-{5,}Begin global rank (?P<rank>\d{1,7}) STD(?:OUT|ERR)-{5,}\s*$")
_END = re.compile(r"-{5,}End global rank \d{1,7} STD(?:OUT|ERR)-{5,}\s*$")
_RANK_IN_PATH = re.compile(r"(?<![A-Za-z])rank[_.\-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_LOCAL_IN_PATH = re.compile(r"(?:^|/)attempt_\d{1,4}/(\d{1,5})/[^/]+$")

# Words of headings: those in the middle of a long log must be heard, too.
NEEDLES = (b"==> ", b"in global rank ", b"End global rank ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """`name` tells parts apart; a rank and a local rank where the heading has them."""

    name: str = ""
    rank: int | None = None
    local_rank: int | None = None


def owner_of_path(path: str) -> Owner:
    """`logs/rank_3/stderr.log` is of rank 3, `RUN/attempt_0/3/stderr.log` of local rank 3."""
    rank, local = _RANK_IN_PATH.search(path), _LOCAL_IN_PATH.search(path)
    return Owner(name=path, rank=int(rank[1]) if rank else None, local_rank=int(local[1]) if local else None)


class Sections:
    """Remembers the last heading."""

    def __init__(self) -> None:
        self.owner = Owner()

    def is_heading(self, text: str) -> bool:
        """True for a line that is a heading, and so nobody's; it changes the owner."""
        if text[:4] == "==> " and (found := _TAIL.match(text)):
            self.owner = owner_of_path(found["path"])
            return True
        if text[:5] != "-----" or "global rank" not in text:
            return False
        begin, end = _BEGIN.match(text), _END.match(text)
        if begin:
            self.owner = Owner(name=f"global rank {begin['rank']}", rank=int(begin["rank"]))
        elif end:
            self.owner = Owner()
        return begin is not None or end is not None
