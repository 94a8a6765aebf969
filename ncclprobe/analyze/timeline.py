"""Who is where: each rank's calls in each process group.

In: recordings of ranks. Out: one `GroupTimeline` per group, with a `Track` per rank; the same for any order of files.
"""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ncclprobe.model.collectives import CollectiveCall, ProcessGroup, Recording
from ncclprobe.model.evidence import Artifact
from ncclprobe.model.frames import Frame, innermost_user_frame
from ncclprobe.model.records import Sourced

UNKNOWN = -1
_MAX_SPAN = 1_000_000  # a ring holds thousands of entries; a wider span of numbers is damage


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One rank's collectives in one group: `rows` of its recording in order of `seqs`; ranks may share these arrays.

    `is_gapless`: every number from the first to the last is there once.
    """

    rank: int
    artifact: Artifact
    recording: Recording
    rows: "array[int]"
    seqs: "array[int]"
    is_gapless: bool

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
        is_completed = self.recording.is_completed
        if 1 not in is_completed:
            return None
        done = (seq for seq, row in zip(reversed(self.seqs), reversed(self.rows), strict=True) if is_completed[row])
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
    layouts = _Layouts()
    for sourced in sorted(recordings, key=lambda s: s.artifact.path):
        for group, track in _tracks(sourced, layouts):
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


def _tracks(sourced: Sourced[Recording], layouts: "_Layouts") -> Iterator[tuple[ProcessGroup, Track]]:
    recording, rank = sourced.record, sourced.artifact.rank
    if rank is None:
        return
    for group, (rows, seqs, is_gapless) in layouts.of(recording).items():
        yield (
            recording.groups[group],
            Track(
                rank=rank,
                artifact=sourced.artifact,
                recording=recording,
                rows=rows,
                seqs=seqs,
                is_gapless=is_gapless,
            ),
        )


_Layout = tuple["array[int]", "array[int]", bool]


class _Layouts:
    """Where each group's collectives are in a recording. Most ranks of a job have them in the same rows."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], dict[int, _Layout]] = {}

    def of(self, recording: Recording) -> dict[int, _Layout]:
        """Per group the rows and numbers, in order of numbers, and whether these have no gap."""
        key = (recording.group_of.tobytes(), bytes(recording.is_p2p), recording.seq.tobytes())
        found = self._known.get(key)
        if found is None:
            rows_of = _collectives(recording)
            found = self._known[key] = {group: _layout(rows, recording.seq) for group, rows in rows_of.items()}
        return found


def _collectives(recording: Recording) -> dict[int, list[int]]:
    """By group, the rows of its collectives; groups in order of their first."""
    rows: dict[int, list[int]] = defaultdict(list)
    for row, (group, is_p2p) in enumerate(zip(recording.group_of, recording.is_p2p, strict=True)):
        if not is_p2p:
            rows[group].append(row)
    return rows


def _layout(rows: list[int], seq_of: "array[int]") -> _Layout:
    pairs = sorted((seq_of[row], row) for row in rows)
    pairs = pairs[bisect_left(pairs, (pairs[-1][0] - _MAX_SPAN, 0)) :]
    seqs = [seq for seq, _ in pairs]
    is_gapless = seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    return array("I", [row for _, row in pairs]), array("q", seqs), is_gapless
