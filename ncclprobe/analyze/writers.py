"""Whose a line is that does not say it: what its file, its directory or the whole job shows.

In: log events. Out: the same events, with the rank of those for which there is one answer.

A local rank is a rank once the first rank of its host is known: other lines of the same host name both numbers, or the
job has no other host. A file is a rank's when the numbers in the names of all files of its kind are the ranks that
speak in them. A host's end is a rank's when every host has one.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ncclprobe.model.log import Died, LogEvent, Setting, Speaker, WorldSize
from ncclprobe.model.records import Sourced

Said = Sourced[LogEvent]
Place = tuple[str, str]
_LOCAL_LOG = re.compile(r"^(?P<run>.*?/?)attempt_\d{1,4}/(?P<local>\d{1,5})/[^/]+$")
_LAST_NUMBER = re.compile(r"(\d{1,6})(?=\D*$)")


def name_writers(events: list[Said], speakers: Iterable[Sourced[Speaker]]) -> list[Said]:
    """Each rule fills in what those before left open."""
    size = _world_size(events)
    named = _given(_with_local_ranks(events), _by_local_rank(_with_local_ranks(events), size))
    named = _given(named, _by_file(named, speakers))
    return _given(named, _by_host(named, size))


def _given(events: list[Said], rank_of: Callable[[Said], int | None]) -> list[Said]:
    found = ((said, rank_of(said) if said.record.rank is None else None) for said in events)
    return [said if rank is None else replace(said, record=replace(said.record, rank=rank)) for said, rank in found]


def _world_size(events: list[Said]) -> int | None:
    sizes = {said.record.what.size for said in events if isinstance(said.record.what, WorldSize)}
    return sizes.pop() if len(sizes) == 1 else None


# --- local ranks ---


def _with_local_ranks(events: list[Said]) -> list[Said]:
    """The agent of torchrun writes `RUN/attempt_0/LOCAL_RANK/stderr.log` on each host."""
    return [_with_local_rank(said) for said in events]


def _with_local_rank(said: Said) -> Said:
    folder = _LOCAL_LOG.match(said.artifact.path)
    if folder is None or said.record.local_rank is not None:
        return said
    return replace(said, record=replace(said.record, local_rank=int(folder["local"])))


def _by_local_rank(events: list[Said], size: int | None) -> Callable[[Said], int | None]:
    firsts: dict[Place, set[int]] = defaultdict(set)
    locals_: dict[Place, set[int]] = defaultdict(set)
    for said in events:
        event = said.record
        if event.local_rank is not None:
            locals_[_place(said)].add(event.local_rank)
            if event.rank is not None:
                firsts[_place(said)].add(event.rank - event.local_rank)
        if isinstance(event.what, Setting) and event.what.name == "FIRST_RANK":
            firsts[_place(said)].add(int(event.what.value))
    known = {place: found.pop() for place, found in firsts.items() if len(found) == 1}
    if not firsts and size is not None and _is_one_host(events, locals_, size):
        known = dict.fromkeys(locals_, 0)

    def rank_of(said: Said) -> int | None:
        first, local_rank = known.get(_place(said)), said.record.local_rank
        return None if first is None or local_rank is None or first < 0 else first + local_rank

    return rank_of


def _place(said: Said) -> Place:
    """Where local ranks count from 0: a host; without its name a run's directory, else a file."""
    folder = _LOCAL_LOG.match(said.artifact.path)
    return (said.record.host, "") if said.record.host else ("", folder["run"] if folder else said.artifact.path)


def _is_one_host(events: list[Said], locals_: dict[Place, set[int]], size: int) -> bool:
    """Whether the launcher starts as many processes here as the job has ranks."""
    settings = (said.record.what for said in events if isinstance(said.record.what, Setting))
    counts = {s.value for s in settings if s.name in ("NPROC_PER_NODE", "LOCAL_WORLD_SIZE")}
    is_all_here = len(locals_) == 1 and all(found == set(range(size)) for found in locals_.values())
    return counts == {str(size)} or (not counts and is_all_here)


# --- files ---


def _by_file(events: list[Said], speakers: Iterable[Sourced[Speaker]]) -> Callable[[Said], int | None]:
    spoken: dict[str, set[int]] = defaultdict(set)
    voices = [(said.artifact.path, said.record.rank) for said in events]
    voices += [(sourced.artifact.path, sourced.record.rank) for sourced in speakers]
    for path, rank in voices:
        spoken[path].update([] if rank is None else [rank])
    kinds: dict[str, dict[str, int]] = defaultdict(dict)
    for path in spoken:
        found = _LAST_NUMBER.search(path)
        if found:
            kinds[path[: found.start()] + "#" + path[found.end() :]][path] = int(found[1])
    own = {path: number for kind in kinds.values() if _is_a_file_a_rank(kind, spoken) for path, number in kind.items()}
    return lambda said: own.get(said.artifact.path)


def _is_a_file_a_rank(numbers: dict[str, int], spoken: dict[str, set[int]]) -> bool:
    """Two files agree, and none contradicts: names of hosts count from 0, too."""
    agreeing = sum(spoken[path] == {number} for path, number in numbers.items())
    return agreeing >= 2 and all(spoken[path] <= {number} for path, number in numbers.items())


# --- hosts ---


def _by_host(events: list[Said], size: int | None) -> Callable[[Said], int | None]:
    ranks: dict[str, set[int]] = defaultdict(set)
    for said in events:
        if said.record.host and said.record.rank is not None:
            ranks[said.record.host].add(said.record.rank)
    nodes = dict(nodes_of_pods(events))
    is_one_each = size is not None and len(ranks) == size and all(len(found) == 1 for found in ranks.values())

    def rank_of(said: Said) -> int | None:
        event = said.record
        if not is_one_each or event.local_rank is not None or not isinstance(event.what, Died):
            return None
        host = event.host or ""
        found = ranks.get(host) or ranks.get(nodes.get(host, ""), set())
        return next(iter(found), None)

    return rank_of


def nodes_of_pods(events: Iterable[Said]) -> Iterator[tuple[str, str]]:
    """Pods and their nodes: lines may name the one or the other."""
    for said in events:
        what = said.record.what
        if isinstance(what, Setting) and what.name == "node" and said.record.host:
            yield said.record.host, what.value
