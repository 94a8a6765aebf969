"""Ranks that no line tells but the whole file does: numbers in launchers' labels, and processes.

In: every line's claim beside the rank that the line names itself. Out: the rank of a claim, or of a process by its
other lines; None where it may be wrong.
"""

import re
from collections import defaultdict

from ncclprobe.model.log import LogEvent, StoreWait, WorkTimeout, WorldSize
from ncclprobe.parse.log.prefix import Claim, Said

_SPAWNS = re.compile(r"\bspawn(?:ing|s|ed)? (\d{1,5}) (?:sub)?process", re.IGNORECASE)
_MAX_PROCESSES = 100_000


class Claims:
    """What has been seen of all labels. A task of srun or mpirun is a rank only if it is one process, and that rank."""

    def __init__(self) -> None:
        self._contradicted: set[str] = set()
        self._process_of: dict[tuple[str, int], str] = {}
        self._ranks_of_process: dict[tuple[str | None, int], set[int]] = defaultdict(set)
        self._numbers: dict[tuple[tuple[str, ...], tuple[int, ...]], set[int]] = defaultdict(set)

    def see(self, said: Said) -> None:
        """Compares a line's claim with what the line says itself."""
        claim, line = said.claim, said.line
        if line.pid is not None and line.rank is not None and line.text.startswith("[rank"):
            self._know_process(line.host, line.pid, line.rank)
        if claim is None:
            return
        if claim.kind == "grid":
            self._see_grid(claim)
            return
        if line.rank is not None:
            self._compare(claim, line.rank)
        if line.local_rank is not None or (line.pid is not None and "NCCL" in line.text):
            self._see_process(claim, f"{line.local_rank}:{line.pid}")
        found = _SPAWNS.search(line.text)
        if found and int(found[1]) > 1:
            self._contradicted.add(claim.kind)

    def see_event(self, claim: Claim, event: LogEvent) -> None:
        """Some facts name the speaker's own rank."""
        if (
            claim.kind != "grid"
            and event.rank is not None
            and isinstance(event.what, (StoreWait, WorldSize, WorkTimeout))
        ):
            self._compare(claim, event.rank)

    def rank(self, claim: Claim | None) -> int | None:
        """The rank, None where the file contradicts it or allows others."""
        if claim is None or claim.kind in self._contradicted:
            return None
        return self._grid_rank(claim) if claim.kind == "grid" else claim.number

    def process_rank(self, host: str | None, pid: int | None) -> int | None:
        """The one rank that torch's lines from this process name."""
        ranks = self._ranks_of_process.get((host, pid), ()) if pid is not None else ()
        return next(iter(ranks)) if len(ranks) == 1 else None

    def _know_process(self, host: str | None, pid: int, rank: int) -> None:
        if len(self._ranks_of_process) < _MAX_PROCESSES:
            self._ranks_of_process[host, pid].add(rank)

    def _compare(self, claim: Claim, rank: int) -> None:
        if rank != claim.number:
            self._contradicted.add(claim.kind)

    def _see_process(self, claim: Claim, process: str) -> None:
        key = (claim.kind, claim.number)
        if len(self._process_of) < _MAX_PROCESSES and self._process_of.setdefault(key, process) != process:
            self._contradicted.add(claim.kind)

    def _see_grid(self, claim: Claim) -> None:
        names, outer, number = _split(claim)
        if len(self._numbers) < _MAX_PROCESSES and number is not None:
            self._numbers[names, outer].add(number)

    def _grid_rank(self, claim: Claim) -> int | None:
        """`TPn` alone is the rank. With DP attention TP runs over all ranks; with PP each stage has its own TP."""
        names, outer, number = _split(claim)
        if number is None or sum(outer_names == names for outer_names, _ in self._numbers) == 0:
            return None
        if len({outer_names for outer_names, _ in self._numbers}) > 1:
            return None
        if not names:
            return number
        if names == ("DP",):
            return number if self._is_one_world() else None
        return outer[0] * width + number if names == ("PP",) and (width := self._stage_width()) else None

    def _is_one_world(self) -> bool:
        """Whether some number of TP ranks per DP replica fits all that is seen: replica k holds k*n to k*n+n-1."""
        least = max((max(seen) // (outer[0] + 1) + 1 for (_, outer), seen in self._numbers.items()), default=1)
        most = min((min(seen) // outer[0] for (_, outer), seen in self._numbers.items() if outer[0]), default=least)
        return least <= most

    def _stage_width(self) -> int | None:
        """TP ranks per stage, if all stages show the same numbers from 0 on without a hole."""
        sets = {frozenset(seen) for seen in self._numbers.values()}
        if len(sets) != 1:
            return None
        (seen,) = sets
        return len(seen) if seen == frozenset(range(len(seen))) else None


def _split(claim: Claim) -> tuple[tuple[str, ...], tuple[int, ...], int | None]:
    """Names and numbers of the outer axes, and the number on the TP axis. A lone `PP2` is a stage of one rank."""
    axes = dict(claim.axes)
    number = axes.pop("TP", None)
    axes.pop("EP", None)
    if number is None and set(axes) == {"PP"}:
        number = 0
    return tuple(sorted(axes)), tuple(axes[name] for name in sorted(axes)), number
