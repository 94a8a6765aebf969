"""What each rank waits in: its earliest outstanding call, over all its groups, in its own issue order.

In: recordings. Out: a `Head` per rank that waits, with the `CallKey`s of all that must be served before it can go on.

Later calls are queued behind the head on the same stream, so they say nothing. Of a batch of sends and recvs torch
never closes the inner entries (pytorch issue 137969), only the "coalesced" entry that ends it: that one counts, and all
its parts must be served.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ncclprobe.model.collectives import CollectiveCall, ProcessGroup, Recording
from ncclprobe.model.evidence import Artifact
from ncclprobe.model.records import Sourced

_PEERS = re.compile(r"^(send|recv) (\d+)(?:->|<-)(\d+)$")
_BATCH_END = "coalesced"


@dataclass(frozen=True, slots=True, order=True)
class CallKey:
    """One call that several ranks share. `seq` for a collective; source and destination (global) for point-to-point."""

    group: str
    members: tuple[int, ...]
    seq: int = -1
    source: int = -1
    destination: int = -1

    @property
    def is_p2p(self) -> bool:
        """Whether it is a send and its recv."""
        return self.source >= 0

    @property
    def ends(self) -> tuple[int, ...]:
        """Both ends of a send, nobody for a collective."""
        return (self.source, self.destination) if self.is_p2p else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The call a rank waits in, and everything in it that must be served."""

    rank: int
    artifact: Artifact
    call: CollectiveCall
    keys: tuple[CallKey, ...]


def find_heads(recordings: Iterable[Sourced[Recording]]) -> dict[int, Head]:
    """By rank; a rank without an outstanding call waits for nothing and has none."""
    heads: dict[int, Head] = {}
    for sourced in sorted(recordings, key=lambda s: s.artifact.path):
        rank = sourced.artifact.rank
        head = _head(rank, sourced.artifact, sourced.record) if rank is not None else None
        if head and (head.rank not in heads or head.call.created_ns < heads[head.rank].call.created_ns):
            heads[head.rank] = head
    return dict(sorted(heads.items()))


def _head(rank: int, artifact: Artifact, recording: Recording) -> Head | None:
    ended, done = _last_ended(recording), _last_message_ended(recording)
    batches = _batch_ends(recording)
    for row in range(len(recording)):
        if recording.is_completed[row] or recording.signatures[recording.signature_of[row]].op == _BATCH_END:
            continue
        group = recording.group_of[row]
        if recording.is_p2p[row]:
            if recording.seq[row] <= done.get(group, -1):
                continue
            end = batches.get(row)
            if end is not None and recording.is_completed[end]:
                continue
            rows = [row] if end is None else [inner for inner, its_end in sorted(batches.items()) if its_end == end]
            keys = tuple(key for inner in rows for key in _p2p_keys(recording, inner))
        else:
            if recording.seq[row] <= ended.get(group, -1):
                continue
            keys = (collective_key(recording.groups[group], recording.seq[row]),)
        if keys:
            return Head(rank=rank, artifact=artifact, call=recording.call(row), keys=tuple(dict.fromkeys(keys)))
    return None


def collective_key(group: ProcessGroup, seq: int) -> CallKey:
    """The key of a collective."""
    return CallKey(group.name, group.ranks, seq)


def _last_ended(recording: Recording) -> dict[int, int]:
    """Per group the last collective that ended: an earlier one that did not say so must have ended too."""
    ended: dict[int, int] = {}
    for row in range(len(recording)):
        if recording.is_completed[row] and not recording.is_p2p[row]:
            group = recording.group_of[row]
            ended[group] = max(ended.get(group, -1), recording.seq[row])
    return ended


def _last_message_ended(recording: Recording) -> dict[int, int]:
    """Per group of nothing but messages, the last that ended by the recorder's own counter.

    In a dump of active calls only, the inner entries of a finished batch are still there, and what ended it is not.
    """
    mixed = {group for group, is_p2p in zip(recording.group_of, recording.is_p2p, strict=True) if not is_p2p}
    ended = {}
    for pg_id, group in recording.group_of_id.items():
        status = recording.statuses.get(pg_id)
        if status is not None and status.last_completed is not None and group not in mixed:
            ended[group] = status.last_completed
    return ended


def _batch_ends(recording: Recording) -> dict[int, int]:
    """The row of each send or recv in a batch -> the row of the entry that ends the batch.

    Both carry one number, but before version 2.1 (torch 2.4), where the entry that ends a batch has the next one and
    none says whether it is point-to-point: there it is the next such entry of the group.
    """
    is_early = recording.version.startswith("1.")
    ends: dict[int, int] = {}
    open_end: dict[int, int] = {}
    for row in reversed(range(len(recording))):
        group = recording.group_of[row]
        if recording.signatures[recording.signature_of[row]].op == _BATCH_END:
            open_end[group] = row
        elif recording.is_p2p[row]:
            end = open_end.get(group)
            if end is not None and (is_early or recording.seq[end] == recording.seq[row]):
                ends[row] = end
        else:
            open_end.pop(group, None)
    return ends


def _p2p_keys(recording: Recording, row: int) -> Iterator[CallKey]:
    """A send's or recv's key; names carry ranks inside the group: `send 0->3`, `recv 1<-0`."""
    match = _PEERS.match(recording.signatures[recording.signature_of[row]].op)
    group = recording.groups[recording.group_of[row]]
    if match is None:
        return
    own, peer = int(match[2]), int(match[3])
    if max(own, peer) >= len(group.ranks):
        return
    ends = (own, peer) if match[1] == "send" else (peer, own)
    yield CallKey(group.name, group.ranks, source=group.ranks[ends[0]], destination=group.ranks[ends[1]])
