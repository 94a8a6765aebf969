"""What each rank waits in: its earliest outstanding call, over all its groups, in its own issue order.

In: recordings. Out: a `Head` per rank that waits, with the `CallKey`s of all that must be served before it can go on.

Later calls are queued behind the head on the same stream, so they say nothing. Of a batch of sends and recvs torch
never closes the inner entries (pytorch issue 137969), only the "coalesced" entry that ends it: that one counts, and all
its parts must be served.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from operator import gt, not_

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
    ended = _Ended()
    for sourced in sorted(recordings, key=lambda s: s.artifact.path):
        rank = sourced.artifact.rank
        head = _head(rank, sourced.artifact, _Calls(sourced.record, ended)) if rank is not None else None
        if head and (head.rank not in heads or head.call.created_ns < heads[head.rank].call.created_ns):
            heads[head.rank] = head
    return dict(sorted(heads.items()))


def _head(rank: int, artifact: Artifact, calls: "_Calls") -> Head | None:
    recording = calls.recording
    row = recording.is_completed.find(0)
    while row >= 0:
        keys = calls.keys(row)
        if keys:
            return Head(rank=rank, artifact=artifact, call=recording.call(row), keys=tuple(dict.fromkeys(keys)))
        row = recording.is_completed.find(0, row + 1)
    return None


def collective_key(group: ProcessGroup, seq: int) -> CallKey:
    """The key of a collective."""
    return CallKey(group.name, group.ranks, seq)


class _Calls:
    """What has to be known of all calls of a rank to tell whether one of them has ended; looked up when asked for."""

    def __init__(self, recording: Recording, ended: "_Ended") -> None:
        self.recording = recording
        self.ended = ended
        self.keys_of_batch: dict[int, tuple[CallKey, ...]] = {}
        self.has_batches = any(signature.op == _BATCH_END for signature in recording.signatures)

    def keys(self, row: int) -> tuple[CallKey, ...]:
        """All that must be served before the call in this row ends; none where it has ended, or does not count."""
        recording = self.recording
        group, seq = recording.group_of[row], recording.seq[row]
        # A coalesced block of collectives is one call, as bare `coalesced` entries of torch before 2.8 show; of sends
        # and recvs it only ends a batch. Dumps of version 1 do not tell the two apart.
        is_end = recording.signatures[recording.signature_of[row]].op == _BATCH_END
        if is_end and (recording.is_p2p[row] or recording.version.startswith("1.")):
            return ()
        if recording.is_p2p[row]:
            return self._message_keys(row) if seq > self.messages_ended.get(group, -1) else ()
        return (collective_key(recording.groups[group], seq),) if seq > self.collectives_ended.get(group, -1) else ()

    def _message_keys(self, row: int) -> tuple[CallKey, ...]:
        end = self.batch_ends.get(row)
        if end is not None and self.recording.is_completed[end]:
            return ()
        if end is None:
            return tuple(_p2p_keys(self.recording, row))
        if end not in self.keys_of_batch:
            inner_keys = (key for inner in self.batches[end] for key in _p2p_keys(self.recording, inner))
            self.keys_of_batch[end] = tuple(inner_keys)
        return self.keys_of_batch[end]

    @cached_property
    def collectives_ended(self) -> dict[int, int]:
        """Per group the last collective that ended: an earlier one that did not say so must have ended too."""
        return self.ended.of(self.recording)

    @cached_property
    def messages_ended(self) -> dict[int, int]:
        """Per group of nothing but messages, the last that ended by the recorder's own counter."""
        return _last_message_ended(self.recording)

    @cached_property
    def batch_ends(self) -> dict[int, int]:
        """The row of each send or recv in a batch -> the row of the entry that ends the batch."""
        return _batch_ends(self.recording) if self.has_batches else {}

    @cached_property
    def batches(self) -> dict[int, list[int]]:
        """The other way round, in order of rows."""
        rows: dict[int, list[int]] = defaultdict(list)
        for row, end in reversed(self.batch_ends.items()):
            rows[end].append(row)
        return rows


class _Ended:
    """The last collectives that ended. Most ranks of a job have the same columns, and the same answer."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], dict[int, int]] = {}

    def of(self, recording: Recording) -> dict[int, int]:
        """Per group."""
        numbers, flags = (recording.group_of, recording.seq), (recording.is_completed, recording.is_p2p)
        key = (*(column.tobytes() for column in numbers), *map(bytes, flags))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _last_ended(recording)
        return found


def _last_ended(recording: Recording) -> dict[int, int]:
    ended: dict[int, int] = {}
    is_ended = map(gt, recording.is_completed, recording.is_p2p)
    for group, seq in compress(zip(recording.group_of, recording.seq, strict=True), is_ended):
        ended[group] = max(ended.get(group, -1), seq)
    return ended


def _last_message_ended(recording: Recording) -> dict[int, int]:
    """Per group of nothing but messages, the last that ended by the recorder's own counter.

    In a dump of active calls only, the inner entries of a finished batch are still there, and what ended it is not.
    """
    mixed = set(compress(recording.group_of, map(not_, recording.is_p2p)))
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
    is_end = [signature.op == _BATCH_END for signature in recording.signatures]
    ends: dict[int, int] = {}
    open_end: dict[int, int] = {}
    rows = zip(recording.group_of, recording.signature_of, recording.is_p2p, recording.seq, strict=True)
    for row, (group, signature, is_p2p, seq) in reversed(list(enumerate(rows))):
        if is_end[signature] and (is_p2p or is_early):
            open_end[group] = row
        elif is_p2p:
            end = open_end.get(group)
            if end is not None and (is_early or recording.seq[end] == seq):
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
