"""Who waits for whom, and who waits for nobody.

In: group timelines and the ranks known to be alive or dead. Out: the `Roots` of the wait-for graph.

Each rank waits on its head only: its earliest outstanding call over all groups, in its own issue order. Later calls
are queued behind it. Edges go from a rank to the call it waits in, and from a call to the members that hold it up:
those that have not issued it, else those that fell behind peers which finished an earlier one, else those busy in
another call. Calls are nodes of their own, so that edges stay linear in ranks.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ncclprobe.analyze.timeline import GroupTimeline
from ncclprobe.model.collectives import CollectiveCall

CallKey = tuple[int, int]
"""Index of the group's timeline, and sequence number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The call a rank waits in."""

    rank: int
    key: CallKey
    call: CollectiveCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """Ranks others wait for and that wait for nobody outside themselves; `is_cycle` when they wait for one another."""

    ranks: tuple[int, ...]
    is_cycle: bool
    waited_for_in: tuple[CallKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The heads of the ranks that wait, the roots, and the calls nobody holds up although they do not end."""

    heads: dict[int, Head]
    roots: tuple[Root, ...]
    stalled: tuple[CallKey, ...]


def find_waits(timelines: tuple[GroupTimeline, ...]) -> Waits:
    """Roots in order of their lowest rank."""
    heads = _heads(timelines)
    calls = {head.key for head in heads.values()}
    holders = {key: _holders(timelines[key[0]], key, heads) for key in calls}
    graph: dict[object, list[object]] = {rank: [head.key] for rank, head in heads.items()}
    graph.update({key: list(ranks) for key, ranks in holders.items()})
    roots = []
    for component in _components(graph):
        ranks = tuple(sorted(node for node in component if isinstance(node, int)))
        outside = {target for node in component for target in graph.get(node, ())} - set(component)
        if ranks and not outside:
            waited = tuple(sorted(key for key, held_by in holders.items() if set(held_by) & set(ranks)))
            if waited:
                roots.append(Root(ranks=ranks, is_cycle=len(component) > 1, waited_for_in=waited))
    stalled = tuple(sorted(key for key, ranks in holders.items() if not ranks))
    return Waits(heads=heads, roots=_joined(roots), stalled=stalled)


def _joined(roots: list[Root]) -> tuple[Root, ...]:
    """Single ranks that are waited for in the same calls are one root: they share a reason."""
    by_reason: dict[tuple[bool, tuple[CallKey, ...]], list[int]] = defaultdict(list)
    for root in roots:
        by_reason[root.is_cycle, root.waited_for_in].extend(root.ranks)
    joined = (Root(ranks=tuple(sorted(r)), is_cycle=c, waited_for_in=w) for (c, w), r in by_reason.items())
    return tuple(sorted(joined, key=lambda root: root.ranks))


def _heads(timelines: tuple[GroupTimeline, ...]) -> dict[int, Head]:
    heads: dict[int, Head] = {}
    for index, timeline in enumerate(timelines):
        for rank, track in timeline.tracks.items():
            call = track.outstanding
            if call and (rank not in heads or call.entry < heads[rank].call.entry):
                heads[rank] = Head(rank=rank, key=(index, call.seq), call=call)
    return heads


def _holders(timeline: GroupTimeline, key: CallKey, heads: dict[int, Head]) -> list[int]:
    seq = key[1]
    absent = [rank for rank, track in timeline.tracks.items() if track.last_seq < seq]
    if absent:
        return absent
    ahead = max((track.last_completed or 0 for track in timeline.tracks.values()), default=0)
    lagging = [rank for rank, track in timeline.tracks.items() if (track.last_completed or 0) < min(seq, ahead)]
    if lagging:
        return lagging
    return [rank for rank in timeline.tracks if rank in heads and heads[rank].key != key]


def _components(graph: dict[object, list[object]]) -> Iterable[list[object]]:
    """Strongly connected components (Tarjan 1972), without recursion: jobs have thousands of ranks."""
    index: dict[object, int] = {}
    low: dict[object, int] = {}
    on_stack: set[object] = set()
    stack: list[object] = []
    for start in list(graph):
        work = [(start, iter(graph.get(start, ())))] if start not in index else []
        while work:
            node, targets = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            target = next((t for t in targets if t not in index or t in on_stack), None)
            if target is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    yield _pop_until(node, stack, on_stack)
            elif target not in index:
                work.append((target, iter(graph.get(target, ()))))
            else:
                low[node] = min(low[node], index[target])


def _pop_until(node: object, stack: list[object], on_stack: set[object]) -> list[object]:
    component = []
    while True:
        last = stack.pop()
        on_stack.discard(last)
        component.append(last)
        if last == node:
            return component
