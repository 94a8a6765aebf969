"""Who waits for whom, and who waits for nobody.

In: recordings, group timelines. Out: `Waits`: the heads, the roots of the wait-for graph, the calls nobody holds up.

Edges go from a rank to each call of its head, and from a call to the ranks that hold it up:
- absent: members that have not issued it;
- stalled: members that lag in what has ended behind peers that finished the same calls: such a rank waits for nobody in
  that call, whatever else it has issued;
- where there are none of these, busy: members whose own head is another call; for a send or recv, its other end.
Calls are nodes of their own, so that edges stay linear in ranks.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from ncclprobe.analyze.components import components
from ncclprobe.analyze.counters import Damaged
from ncclprobe.analyze.frontier import Frontier, GroupKey
from ncclprobe.analyze.heads import CallKey, Head
from ncclprobe.analyze.timeline import GroupTimeline, Track
from ncclprobe.model.report import BlockedOn

# In these a rank may rightly be done before the others: the root of a broadcast has sent, a rank of a reduce has given.
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter", "_broadcast_oop", "_reduce_oop"})

_NOTHING_DAMAGED = Damaged()


class Reason(str, Enum):
    """Why others wait for a rank."""

    ABSENT = "absent"
    STALLED = "stalled"
    CYCLE = "cycle"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """Ranks that others wait for in `keys` and that wait for nobody outside themselves.

    `lag`: by how many ended collectives a stalled rank is behind its peers, at most.
    """

    ranks: tuple[int, ...]
    reason: Reason
    keys: tuple[CallKey, ...]
    lag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """`stalled`: calls all members issued and nobody holds up. `unheard`: members of their groups without a dump.

    Members whose recorder does not tell what they wait in, or whose dump is damaged, are unheard too. `has_moved`: the
    dumps are not of one moment, so they cannot show who waits for whom. `holders`: by call, the ranks that hold it up.
    """

    heads: dict[int, Head]
    roots: tuple[Root, ...]
    stalled: tuple[CallKey, ...]
    unheard: tuple[int, ...]
    has_moved: bool = False
    holders: dict[CallKey, tuple[int, ...]] = field(default_factory=dict)

    def waiter(self, root: Root) -> Head:
        """The lowest rank outside the root that waits for it (inside, for a cycle), and what it waits in."""
        keys = set(root.keys)
        waiting = [head for head in self.heads.values() if not keys.isdisjoint(head.keys)]
        return next((head for head in waiting if head.rank not in root.ranks), waiting[0])

    def blocked_on(self, root: Root) -> BlockedOn:
        """That call, for a report."""
        call = self.waiter(root).call
        timeout_s = call.timeout_ms / 1000 if call.timeout_ms else None
        return BlockedOn(group=call.group.label, seq=call.seq, op=call.signature.op, timeout_s=timeout_s)

    def victims(self, root: Root) -> tuple[int, ...]:
        """Every rank that waits, directly or not, and is not of the root."""
        return tuple(rank for rank in self.heads if rank not in root.ranks)


def find_waits(
    heads: dict[int, Head],
    timelines: tuple[GroupTimeline, ...],
    frontiers: dict[GroupKey, dict[int, Frontier]],
    dumped: frozenset[int],
    doubtful: frozenset[int] = frozenset(),
    *,
    damaged: Damaged = _NOTHING_DAMAGED,
    was_moving: bool = False,
) -> Waits:
    """`dumped`: ranks whose recorder was read; `doubtful`: those of them whose head may not be what they wait in.

    `damaged`: those whose dumps do not show all; `was_moving`: calls were still issued when the dumps were taken. Roots
    are in order of their lowest rank.
    """
    progress = _progress(timelines, frontiers, damaged)
    if _has_moved(timelines, progress) or (was_moving and _has_counted_on(timelines, progress)):
        return Waits(heads=heads, roots=(), stalled=(), unheard=(), has_moved=True)
    graph = _Graph(heads, progress, dumped, damaged)
    roots: list[Root] = []
    for component in components(graph.edges):
        ranks = tuple(sorted(node for node in component if isinstance(node, int)))
        members = set(component)
        if ranks and all(target in members for node in component for target in graph.edges.get(node, ())):
            roots += graph.root_of(ranks, is_cycle=len(component) > 1)
    stalled = tuple(sorted(key for key in graph.holders if not graph.holders[key]))
    concerned = {rank for key in graph.holders for rank in key.members}
    unheard = (concerned - dumped) | (concerned & damaged.ranks)
    return Waits(
        heads=heads,
        roots=_joined(roots),
        stalled=stalled,
        unheard=tuple(sorted(unheard | doubtful)),
        holders=graph.holders,
    )


_Progress = dict[GroupKey, dict[int, Frontier]]


def _progress(timelines: tuple[GroupTimeline, ...], frontiers: _Progress, damaged: Damaged) -> _Progress:
    """Counters and entries together: whichever has seen more. Damaged entries do not tell what was issued last."""
    merged: _Progress = defaultdict(dict)
    for key, of_rank in frontiers.items():
        merged[key].update(of_rank)
    for timeline in timelines:
        key = (timeline.group.name, timeline.group.ranks)
        for rank, track in timeline.tracks.items():
            known = merged[key].get(rank, Frontier(issued=None, ended=None))
            is_last_known = rank not in damaged.ranks or known.issued is not None
            merged[key][rank] = Frontier(
                issued=_later(known.issued, track.last_seq) if is_last_known else None,
                ended=_later(known.ended, track.last_completed),
            )
    return merged


def _has_moved(timelines: tuple[GroupTimeline, ...], progress: _Progress) -> bool:
    """Whether a rank has ended a collective that another had not issued yet, when their dumps were taken."""
    for timeline in timelines:
        of_rank = progress[timeline.group.name, timeline.group.ranks]
        issued = [frontier.issued for frontier in of_rank.values() if frontier.issued is not None]
        ended = max((_last_joint(track) for track in timeline.tracks.values()), default=-1)
        if issued and ended > min(issued):
            return True
    return False


def _has_counted_on(timelines: tuple[GroupTimeline, ...], progress: _Progress) -> bool:
    """The same by counters alone, which do not tell what was called: unless a call in between may end before."""
    entries = {(timeline.group.name, timeline.group.ranks): timeline for timeline in timelines}
    for key, of_rank in progress.items():
        issued = min((f.issued for f in of_rank.values() if f.issued is not None), default=None)
        ended = max((f.ended for f in of_rank.values() if f.ended is not None), default=-1)
        if issued is not None and ended > issued:
            tracks = entries[key].tracks.values() if key in entries else ()
            if not any(_has_rooted(track, issued + 1, ended) for track in tracks):
                return True
    return False


def _has_rooted(track: Track, first: int, last: int) -> bool:
    """Whether one of those calls, as far as this rank still holds them, ends on some ranks before others come."""
    rows = track.rows[bisect_left(track.seqs, first) : bisect_left(track.seqs, last + 1)]
    recording = track.recording
    return any(recording.signatures[recording.signature_of[row]].op in _ROOTED for row in rows)


def _last_joint(track: Track) -> int:
    """The last collective that ended on this rank and cannot end before every member has issued it."""
    recording = track.recording
    for seq, row in zip(reversed(track.seqs), reversed(track.rows), strict=True):
        if recording.is_completed[row] and recording.signatures[recording.signature_of[row]].op not in _ROOTED:
            return seq
    return -1


def _later(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


class _Graph:
    """Ranks and calls, and who holds up which call."""

    def __init__(self, heads: dict[int, Head], progress: _Progress, dumped: frozenset[int], damaged: Damaged) -> None:
        self.heads = heads
        self.progress = progress
        self.dumped = dumped
        self.damaged = damaged
        self.waiters: dict[CallKey, list[int]] = defaultdict(list)
        for rank, head in heads.items():
            for key in head.keys:
                self.waiters[key].append(rank)
        groups = {*progress, *((key.group, key.members) for key in self.waiters)}
        self.furthest = {group: self._furthest(group) for group in groups}
        self.holders = {key: tuple(self._holders(key)) for key in self.waiters}
        self.holders.update({key: self._held_by_batch(key) for key in self.waiters if not self.holders[key]})
        self.held: dict[int, list[CallKey]] = defaultdict(list)
        for key, ranks in self.holders.items():
            for rank in ranks:
                self.held[rank].append(key)
        self.edges: dict[object, tuple[object, ...]] = {key: ranks for key, ranks in self.holders.items()}  # noqa: C416
        for rank, head in heads.items():
            self.edges[rank] = () if self._is_stalled(rank) else head.keys

    def _furthest(self, group: GroupKey) -> int:
        ended = (frontier.ended for frontier in self.progress.get(group, {}).values())
        return max((seq for seq in ended if seq is not None), default=-1)

    def _holders(self, key: CallKey) -> list[int]:
        if key.is_p2p:
            return [end for end in key.ends if self._is_elsewhere(end, key)]
        absent = [rank for rank in self._members(key) if self._is_absent(rank, key)]
        present = set(self._members(key)).difference(absent)
        stalled = [rank for rank in self._members(key) if rank in present and self._lags(rank, key)]
        return absent + stalled or [rank for rank in self._members(key) if self._is_elsewhere(rank, key)]

    def _held_by_batch(self, key: CallKey) -> tuple[int, ...]:
        """Ends of a matched send that cannot finish it, because another part of their batch is held up."""
        blocked = (end for end in key.ends if end in self.heads and self._is_blocked_beside(end, key))
        return tuple(blocked)

    def _is_blocked_beside(self, rank: int, key: CallKey) -> bool:
        return any(self.holders.get(other) for other in self.heads[rank].keys if other != key)

    def _members(self, key: CallKey) -> Iterable[int]:
        return key.members or sorted(self.progress.get((key.group, key.members), {}))

    def _is_absent(self, rank: int, key: CallKey) -> bool:
        """A rank whose recorder was read and holds no such call; one that was not read may be anywhere."""
        if rank in self.damaged.hidden:
            return False
        frontier = self.progress.get((key.group, key.members), {}).get(rank)
        if frontier is None or frontier.issued is None:
            return rank in self.dumped and rank not in self.damaged.ranks and rank not in self.waiters[key]
        return frontier.issued < key.seq

    def _lags(self, rank: int, key: CallKey) -> bool:
        head = self.heads.get(rank)
        return head is not None and (key.group, key.members) in _groups(head) and self._is_stalled(rank)

    def _is_stalled(self, rank: int) -> bool:
        """Peers have finished the very collective that this rank is in."""
        head = self.heads[rank]
        if head.call.is_p2p or head.call.signature.op in _ROOTED:
            return False
        return all(self.furthest[key.group, key.members] >= key.seq for key in head.keys)

    def _is_elsewhere(self, rank: int, key: CallKey) -> bool:
        head = self.heads.get(rank)
        if head is None:
            return key.is_p2p and rank in self.dumped and rank not in self.damaged.hidden
        return key not in head.keys and not self._has_ended(rank, key)

    def _has_ended(self, rank: int, key: CallKey) -> bool:
        """Whether the rank is done with a collective: it holds nobody up there, wherever it waits now."""
        frontier = self.progress.get((key.group, key.members), {}).get(rank)
        return not key.is_p2p and frontier is not None and frontier.ended is not None and frontier.ended >= key.seq

    def root_of(self, ranks: tuple[int, ...], *, is_cycle: bool) -> Iterator[Root]:
        """The root these ranks are, if anybody waits for them."""
        keys = tuple(sorted({key for rank in ranks for key in self.held.get(rank, ())}))
        members = set(ranks)
        has_others = any(rank not in members for key in keys for rank in self.waiters[key])
        if is_cycle:
            yield Root(ranks=ranks, reason=Reason.CYCLE, keys=keys)
        elif has_others:
            is_stalled = all(rank in self.heads and self._is_stalled(rank) for rank in ranks)
            reason = Reason.STALLED if is_stalled else Reason.ABSENT
            yield Root(ranks=ranks, reason=reason, keys=keys, lag=max(map(self._lag, ranks)) if is_stalled else 0)

    def _lag(self, rank: int) -> int:
        groups = ((key, of_rank[rank].ended) for key, of_rank in self.progress.items() if rank in of_rank)
        return max((self.furthest[key] - ended for key, ended in groups if ended is not None), default=0)


def _groups(head: Head) -> set[GroupKey]:
    return {(key.group, key.members) for key in head.keys}


def _joined(roots: list[Root]) -> tuple[Root, ...]:
    """Single ranks that others wait for with the same reason are one root: that is what they share."""
    by_reason: dict[Reason, list[Root]] = defaultdict(list)
    cycles = []
    for root in roots:
        cycles.append(root) if root.reason is Reason.CYCLE else by_reason[root.reason].append(root)
    for reason, alike in by_reason.items():
        ranks = {rank for root in alike for rank in root.ranks}
        keys = {key for root in alike for key in root.keys}
        lag = max(root.lag for root in alike)
        cycles.append(Root(ranks=tuple(sorted(ranks)), reason=reason, keys=tuple(sorted(keys)), lag=lag))
    return tuple(sorted(cycles, key=lambda root: root.ranks))
