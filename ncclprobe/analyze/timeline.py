"""Who is where: each rank's calls in each process group.

In: recordings of ranks. Out: one `GroupTimeline` per group, with a `Track` per rank; the same for any order of files.
"""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ncclprobe.model.collectives import CollectiveCall, ProcessGroup, Recording, Signature
from ncclprobe.model.evidence import Artifact
from ncclprobe.model.frames import Frame, innermost_user_frame
from ncclprobe.model.records import Sourced

UNKNOWN = -1
_MAX_SPAN = 1_000_000  # a ring holds thousands of entries; a wider span of numbers is damage


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One rank's collectives in one group: `rows` of its recording in order of `seqs`."""

    rank: int
    artifact: Artifact
    recording: Recording
    rows: "array[int]"
    seqs: "array[int]"

    @property
    def first_seq(self) -> int:
        """The oldest call the recorder still holds."""
        return self.seqs[0]

    @property
    def last_seq(self) -> int:
        """The last call this rank has issued."""
        return self.seqs[-1]

    @property
    def last_completed(self) -> int | None:
        """The last call that ended, None when the recorder holds none that did."""
        done = (
            seq
            for seq, row in zip(reversed(self.seqs), reversed(self.rows), strict=True)
            if self.recording.is_completed[row]
        )
        return next(done, None)

    def call(self, seq: int) -> CollectiveCall | None:
        """The call with this number; the last of them where a coalesced block shares one."""
        at = bisect_left(self.seqs, seq + 1) - 1
        if at < 0 or self.seqs[at] != seq:
            return None
        return self.recording.call(self.rows[at])

    def site(self, seq: int) -> Frame | None:
        """The user's line that made the call."""
        call = self.call(seq)
        return innermost_user_frame(call.stack) if call else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTimeline:
    """One process group. `members` are global ranks; those without a track have no dump, or no entry of this group."""

    group: ProcessGroup
    members: tuple[int, ...]
    tracks: dict[int, Track]

    @property
    def last_seq(self) -> int:
        """The furthest any rank has come."""
        return max(track.last_seq for track in self.tracks.values())

    @property
    def silent(self) -> tuple[int, ...]:
        """Members whose calls in this group are not known."""
        return tuple(rank for rank in self.members if rank not in self.tracks)


def build_timelines(recordings: Iterable[Sourced[Recording]], world_size: int | None) -> tuple[GroupTimeline, ...]:
    """One timeline per group that has calls, in order of name. Recordings whose rank is unknown cannot take part."""
    tracks: dict[tuple[str, tuple[int, ...]], dict[int, Track]] = defaultdict(dict)
    groups: dict[tuple[str, tuple[int, ...]], ProcessGroup] = {}
    for sourced in sorted(recordings, key=lambda s: s.artifact.path):
        for group, track in _tracks(sourced):
            key = (group.name, group.ranks)
            groups.setdefault(key, group)
            known = tracks[key].get(track.rank)
            if known is None or known.last_seq < track.last_seq:
                tracks[key][track.rank] = track
    return tuple(
        GroupTimeline(group=groups[key], members=_members(groups[key], of_group, world_size), tracks=of_group)
        for key, of_group in sorted(tracks.items())
    )


def _members(group: ProcessGroup, tracks: dict[int, Track], world_size: int | None) -> tuple[int, ...]:
    if group.ranks:
        return group.ranks
    if group.label == "default_pg" and world_size is not None:
        return tuple(range(world_size))
    return tuple(sorted(tracks))


def _tracks(sourced: Sourced[Recording]) -> Iterable[tuple[ProcessGroup, Track]]:
    recording, rank = sourced.record, sourced.artifact.rank
    if rank is None:
        return
    rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row, (group, seq, is_p2p) in enumerate(zip(recording.group_of, recording.seq, recording.is_p2p, strict=True)):
        if not is_p2p:
            rows[group].append((seq, row))
    for group, found in rows.items():
        pairs = sorted(found)
        pairs = pairs[bisect_left(pairs, (pairs[-1][0] - _MAX_SPAN, 0)) :]
        yield (
            recording.groups[group],
            Track(
                rank=rank,
                artifact=sourced.artifact,
                recording=recording,
                rows=array("I", (row for _, row in pairs)),
                seqs=array("q", (seq for seq, _ in pairs)),
            ),
        )


class Tokens:
    """Small numbers for call signatures that are the same for the purpose of matching, over all ranks."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def of(self, track: Track) -> "array[int]":
        """One token per sequence number from `track.first_seq` to `track.last_seq`; UNKNOWN where a call is missing."""
        tokens = array("q", [UNKNOWN]) * (track.last_seq - track.first_seq + 1)
        of_signature = [self._number(signature) for signature in track.recording.signatures]
        for seq, row in zip(track.seqs, track.rows, strict=True):
            tokens[seq - track.first_seq] = of_signature[track.recording.signature_of[row]]
        return tokens

    def _number(self, signature: Signature) -> int:
        key = comparable(signature)
        return self._numbers.setdefault(key, len(self._numbers))


# What members of one call must agree on. Sides that may rightly differ between ranks are left out: the root's lists in
# gather and scatter, each rank's share in all_to_all, in uneven all_gather and reduce_scatter (torch c10d semantics).
_COMPARED_SIDES = {
    "all_gather": ("output_sizes",),
    "all_gather_into_tensor_coalesced": ("output_sizes",),
    "_all_gather_base": ("output_sizes",),
    "all_to_all": (),
    "all_to_allv": (),
    "gather": ("input_sizes",),
    "reduce_scatter": ("input_sizes",),
    "_reduce_scatter_base": ("input_sizes",),
    "scatter": ("output_sizes",),
}
_SAME_OP = {
    "_all_gather_base": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "all_gather_into_tensor": "all_gather",
}
_ALL_SIDES = ("input_sizes", "output_sizes")


def comparable(signature: Signature) -> tuple[object, ...]:
    """The part of a signature that every member of the group must share."""
    sides = _COMPARED_SIDES.get(signature.op, _ALL_SIDES)
    dtypes = signature.input_dtypes or signature.output_dtypes
    return (_SAME_OP.get(signature.op, signature.op), dtypes[:1], *(getattr(signature, side) for side in sides))
