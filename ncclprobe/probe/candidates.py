"""Which processes may be ranks.

In: a `Scan`. Out: `Candidate`s: the topmost Python processes with a number, each with its Python descendants.

Children inherit RANK from their rank, and a launcher may carry a number of its own: that of its node, as a pod's RANK
or as srun's task. So the numbers alone decide nothing; who descends from whom does.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile

from ncclprobe.model.job import JobKey
from ncclprobe.probe import identity
from ncclprobe.probe.scan import Scan, Seen

_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")

HasTorch = Callable[[int], bool]


@dataclass(slots=True)
class Candidate:
    """A process that may be a rank, its Python descendants, the shells around it, and who started it."""

    top: Seen
    number: int
    job: JobKey
    launcher: int | None
    wrappers: tuple[int, ...]
    children: list[Seen] = field(default_factory=list)


def find_candidates(scan: Scan, own_pid: int, has_torch: HasTorch) -> list[Candidate]:
    """`own_pid` is the probe's: neither it nor any ncclprobe is part of a job.

    `has_torch` tells whether a process has loaded torch; it is asked only where that decides.
    """
    marked = {pid: seen for pid, seen in scan.marked.items() if not _is_ncclprobe(seen, scan, own_pid)}
    above = {pid: [marked[up] for up in scan.ancestors(pid) if up in marked] for pid in marked}
    pythons = {pid for pid, seen in marked.items() if seen.is_python}
    pythons -= _starters(pythons, marked, above, has_torch)
    tops = {pid: next((up.pid for up in reversed(above[pid]) if up.pid in pythons), pid) for pid in sorted(pythons)}
    found = {pid: _candidate(marked[pid], above[pid], scan) for pid, top in tops.items() if pid == top}
    for pid, top in tops.items():
        if pid != top:
            found[top].children.append(marked[pid])
    return list(found.values())


def _is_ncclprobe(process: Seen, scan: Scan, own_pid: int) -> bool:
    """Whoever starts ncclprobe in a shell of the job hands it a RANK."""
    arguments = process.arguments
    words = zip(arguments, (*arguments[1:], ""), strict=True)
    is_ours = any(
        os.path.basename(word) == "ncclprobe" or (_ends_in_code(word) and "ncclprobe" in following)
        for word, following in list(words)[:5]
    )
    return is_ours or own_pid in (process.pid, *scan.ancestors(process.pid))


def _ends_in_code(word: str) -> bool:
    """Options of Python after which code or a module's name follows: -c, -m, -Ic."""
    return word.startswith("-") and word[-1] in "cm"


def _candidate(top: Seen, above: list[Seen], scan: Scan) -> Candidate:
    number = identity.rank(top.environ)
    shells = takewhile(lambda up: not up.is_python and identity.rank(up.environ) == number, above)
    wrappers = [up.pid for up in shells]
    outside = [pid for pid in scan.ancestors(top.pid) if pid not in wrappers]
    return Candidate(
        top=top,
        number=number or 0,
        job=identity.job(top.environ),
        launcher=outside[0] if outside else None,
        wrappers=tuple(wrappers),
    )


def _starters(
    pythons: set[int], marked: dict[int, Seen], above: dict[int, list[Seen]], has_torch: HasTorch
) -> set[int]:
    """Python processes that carry a number but only start ranks."""
    found: set[int] = set()
    for pid in pythons:
        for up in above[pid]:
            if up.pid in pythons - found and _starts(up, marked[pid], has_torch):
                found.add(up.pid)
    return found


def _starts(up: Seen, process: Seen, has_torch: HasTorch) -> bool:
    if identity.explicit_rank(process.environ) is not None and "LOCAL_RANK" not in up.environ:
        run_id = process.environ.get("TORCHELASTIC_RUN_ID")
        is_other = identity.rank(up.environ) != identity.rank(process.environ)
        if is_other or run_id != up.environ.get("TORCHELASTIC_RUN_ID") or _is_launcher(up):
            return True
    return not has_torch(up.pid) and has_torch(process.pid)


def _is_launcher(process: Seen) -> bool:
    return any(os.path.basename(word) in _LAUNCHERS for word in process.arguments[:8])
