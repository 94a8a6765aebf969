"""Everything the detectors look at, worked out once.

In: `Evidence`. Out: a `Case`: who the ranks are, where they stand, where their calls diverge, who waits for whom.
"""

from dataclasses import dataclass, replace

from ncclprobe.analyze.chosen import choose
from ncclprobe.analyze.frontier import find_doubtful, find_frontiers, find_nameless
from ncclprobe.analyze.heads import find_heads
from ncclprobe.analyze.match import Mismatch, find_mismatch
from ncclprobe.analyze.positions import Position, find_positions
from ncclprobe.analyze.timeline import GroupTimeline, build_timelines
from ncclprobe.analyze.waits import Waits, find_waits
from ncclprobe.model.evidence import Artifact, Citation
from ncclprobe.model.frames import Frame, Stack, innermost_user_frame
from ncclprobe.model.job import JobProcess, Rank, Role
from ncclprobe.model.manifest import Outcome
from ncclprobe.model.records import Evidence, Sourced
from ncclprobe.model.report import CodeLocation
from ncclprobe.model.source import Branch, SourceFile

_FROZEN_NS = 5_000_000_000  # steps without any collective for longer are rare, and waiting costs little


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job's evidence, joined. `expected` are all global ranks there should be, as far as that is known."""

    evidence: Evidence
    ranks: dict[int, Rank]
    world_size: int | None
    expected: tuple[int, ...]
    timelines: tuple[GroupTimeline, ...]
    mismatches: tuple[Mismatch, ...]
    waits: Waits
    positions: dict[int, Position]
    sources: dict[tuple[str, str], Sourced[SourceFile]]

    @property
    def missing(self) -> tuple[int, ...]:
        """Expected ranks that no host shows as a process and no file speaks of."""
        heard = {*self.ranks, *self.positions, *self.dumped}
        return tuple(rank for rank in self.expected if rank not in heard)

    @property
    def dumped(self) -> frozenset[int]:
        """Ranks whose flight recorder was read."""
        return _dumped(self.evidence)

    @property
    def silent_hosts(self) -> tuple[str, ...]:
        """Hosts that were asked and gave nothing."""
        unheard = (Outcome.FAILED, Outcome.TIMED_OUT)
        return tuple(host.name for host in self.evidence.hosts if host.outcome in unheard)

    @property
    def unreachable_hosts(self) -> tuple[str, ...]:
        """Hosts from whose address nothing came back; one that refused to let us in is alive."""
        return tuple(host.name for host in self.evidence.hosts if host.outcome is Outcome.TIMED_OUT)

    @property
    def is_frozen(self) -> bool:
        """Whether every recorder's newest call was old when it was read: then nothing moves any more."""
        ages_ns = [
            sourced.artifact.end_ns - max(sourced.record.created_ns)
            for sourced in self.evidence.recordings
            if sourced.artifact.end_ns is not None and len(sourced.record)
        ]
        return bool(ages_ns) and len(ages_ns) == len(self.evidence.recordings) and min(ages_ns) > _FROZEN_NS

    def host_of(self, rank: int) -> str | None:
        """Where the rank runs."""
        return self.ranks[rank].host if rank in self.ranks else None

    def source(self, rank: int, frame: Frame) -> Sourced[SourceFile] | None:
        """The file of a frame, from the rank's own host, else from any: a job runs the same code everywhere."""
        own = self.sources.get((self.host_of(rank) or "", frame.file))
        return own or next((s for key, s in sorted(self.sources.items()) if _is_file_of(key, frame)), None)

    def branch(self, rank: int, frame: Frame | None) -> tuple[Artifact, Branch] | None:
        """The innermost rank-dependent branch around a frame's line."""
        found = self.source(rank, frame) if frame else None
        branch = found.record.branch_at(frame.line) if found and frame else None
        return (found.artifact, branch) if found and branch else None

    def locate(self, rank: int, frame: Frame) -> CodeLocation:
        """A frame as a place in the user's code."""
        found = self.source(rank, frame)
        branch = self.branch(rank, frame)
        return CodeLocation(
            rank=rank,
            file=frame.file,
            line=frame.line,
            function=frame.function,
            source_line=found.record.line(frame.line) if found else None,
            condition=f"{branch[1].text} (line {branch[1].line})" if branch else None,
        )

    def branch_taken_by(self, ranks: tuple[int, ...], stack: Stack) -> tuple[Artifact, Branch, Frame] | None:
        """A branch around any user frame of the stack that these ranks take and no other expected rank does."""
        for frame in stack:
            found = self.branch(ranks[0], frame) if frame.is_user_code else None
            if found and self._takes_exactly(ranks, found[1]):
                return *found, frame
        return None

    def call_site(self, ranks: tuple[int, ...], stack: Stack) -> Frame | None:
        """The line to fix: the user's call in a branch that only these ranks take, else the user's innermost line."""
        found = self.branch_taken_by(ranks, stack)
        return found[2] if found else innermost_user_frame(stack)

    def _takes_exactly(self, ranks: tuple[int, ...], branch: Branch) -> bool:
        for rank in {*self.expected, *self.ranks, *ranks}:
            local_rank = self.ranks[rank].local_rank if rank in self.ranks else None
            if branch.taken_by.admits(rank, local_rank) is not (rank in ranks):
                return False
        return True


def build_case(given: Evidence) -> Case:
    """Joins all kinds of evidence by rank."""
    recordings, left_out = choose(given.recordings)
    evidence = replace(given, recordings=recordings, gaps=(*given.gaps, *left_out))
    ranks = _ranks(evidence.processes)
    sizes = {rank.world_size for rank in ranks.values() if rank.world_size is not None}
    world_size = max(sizes) if sizes else _world_size_in_dumps(evidence)
    timelines = build_timelines(evidence.recordings, world_size)
    in_stacks = {s.artifact.rank for s in evidence.stacks if s.artifact.rank is not None}
    seen = {*ranks, *in_stacks, *(rank for timeline in timelines for rank in timeline.members)}
    frontiers, nameless = find_frontiers(evidence.recordings), find_nameless(evidence.recordings)
    # Groups without a name cannot be matched between ranks.
    mismatches = (find_mismatch(timeline) for timeline in timelines if not nameless)
    return Case(
        evidence=evidence,
        ranks=ranks,
        world_size=world_size,
        expected=tuple(range(world_size)) if world_size is not None else tuple(sorted(seen)),
        timelines=timelines,
        mismatches=tuple(mismatch for mismatch in mismatches if mismatch),
        waits=find_waits(
            find_heads(evidence.recordings),
            timelines,
            frontiers,
            _dumped(evidence),
            find_doubtful(timelines, frontiers, nameless),
        ),
        positions=find_positions(evidence.stacks, ranks),
        sources={(s.artifact.host, s.artifact.origin): s for s in evidence.source_files},
    )


def _dumped(evidence: Evidence) -> frozenset[int]:
    return frozenset(s.artifact.rank for s in evidence.recordings if s.artifact.rank is not None)


def _world_size_in_dumps(evidence: Evidence) -> int | None:
    groups = (group for sourced in evidence.recordings for group in sourced.record.groups)
    sizes = [len(group.ranks) for group in groups if group.label == "default_pg" and group.ranks]
    return max(sizes, default=None)


def _is_file_of(key: tuple[str, str], frame: Frame) -> bool:
    """A file given by hand (of no host) lies elsewhere than in the job: there its bare name must do."""
    host, file = key
    return file == frame.file or (not host and file.rsplit("/", 1)[-1] == frame.file.rsplit("/", 1)[-1])


def _ranks(processes: tuple[Sourced[JobProcess], ...]) -> dict[int, Rank]:
    children: dict[tuple[str, int | None], list[int]] = {}
    for sourced in processes:
        if sourced.record.role is Role.CHILD:
            children.setdefault((sourced.artifact.host, sourced.record.rank), []).append(sourced.record.pid)
    ranks = {}
    for sourced in processes:
        process, host = sourced.record, sourced.artifact.host
        if process.role is Role.RANK and process.rank is not None:
            ranks[process.rank] = Rank(
                rank=process.rank,
                host=host,
                local_rank=process.local_rank,
                pid=process.pid,
                world_size=process.world_size,
                children=tuple(sorted(children.get((host, process.rank), ()))),
                looks=process.looks,
            )
    return dict(sorted(ranks.items()))


def cite(artifact: Artifact, place: str, quote: str, says: str) -> Citation:
    """A citation with a quote short enough to read."""
    return Citation(artifact=artifact.path, place=place, quote=" ".join(quote.split())[:200], says=says)
