"""Everything the detectors look at, worked out once.

In: `Evidence`. Out: a `Case`: who the ranks are, where they stand, where their calls diverge, who waits for whom.
"""

from dataclasses import dataclass, replace

from ncclprobe.analyze.chosen import choose
from ncclprobe.analyze.counters import find_damaged, trust
from ncclprobe.analyze.fates import Fate, find_fates
from ncclprobe.analyze.frontier import find_doubtful, find_frontiers, find_nameless
from ncclprobe.analyze.gpus import GpuDevice, find_devices
from ncclprobe.analyze.heads import find_heads
from ncclprobe.analyze.interrupts import find_interrupted
from ncclprobe.analyze.launches import Launches, join_launches
from ncclprobe.analyze.logs import Logs, join_logs
from ncclprobe.analyze.looks import Looks, compare_looks
from ncclprobe.analyze.match import Mismatch, find_mismatch
from ncclprobe.analyze.op_sequences import OpSequences, find_op_sequences
from ncclprobe.analyze.positions import Position, find_positions
from ncclprobe.analyze.source_waits import tell_locks
from ncclprobe.analyze.standings import GroupLog, find_standings
from ncclprobe.analyze.timeline import GroupTimeline, build_timelines
from ncclprobe.analyze.waits import Waits, find_waits
from ncclprobe.model.evidence import Artifact, Citation
from ncclprobe.model.frames import Frame, Stack, innermost_user_frame
from ncclprobe.model.job import JobProcess, Rank, Role
from ncclprobe.model.manifest import Outcome
from ncclprobe.model.records import Evidence, Sourced
from ncclprobe.model.report import CodeLocation
from ncclprobe.model.source import Branch, SourceFile


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
    logs: Logs
    standings: tuple[GroupLog, ...]
    fates: tuple[Fate, ...]
    launches: Launches
    ops: OpSequences
    looks: Looks
    devices: tuple[GpuDevice, ...]

    @property
    def missing(self) -> tuple[int, ...]:
        """Expected ranks that no host shows as a process and no file speaks of."""
        heard = {*self.ranks, *self.positions, *self.dumped, *self.logs.heard, *self.launches.heard}
        return tuple(rank for rank in self.expected if rank not in heard)

    @property
    def gone(self) -> tuple[int, ...]:
        """Ranks whose process has ended, though others on its host live: their log lies beside the others'."""
        hosts = {rank.host for rank in self.ranks.values()}
        spoke, told = self.evidence.speakers, self.evidence.log_events
        logs = [*(sourced.artifact for sourced in spoke), *(sourced.artifact for sourced in told)]
        found = {log.rank for log in logs if log.host in hosts and log.rank is not None}
        return tuple(sorted(found - self.ranks.keys()))

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
    def outer_pids(self) -> dict[int | None, int]:
        """The ranks of processes by the host's pid, where their status was given that tells the container's too."""
        given = (process.record for process in self.evidence.processes if not process.artifact.host)
        ranks = {record.pid: self.logs.rank_with(None, record.inner_pid) for record in given}
        return {pid: rank for pid, rank in ranks.items() if rank is not None}

    @property
    def told(self) -> dict[tuple[str, int], int]:
        """The ranks of processes, by host and pid, as logs or RAS tell them."""
        return _told(self.logs, self.launches)

    @property
    def is_frozen(self) -> bool:
        """Whether nothing moves any more: see `Looks`."""
        return self.looks.is_frozen is True

    def host_of(self, rank: int) -> str | None:
        """Where the rank runs: as its process shows, else as its log says."""
        return self.ranks[rank].host if rank in self.ranks else self.logs.host_of.get(rank)

    def ranks_of_host(self, host: str) -> tuple[int, ...]:
        """Ranks that run there, or in a pod there, in order."""
        everyone = {*self.ranks, *self.logs.host_of}
        nodes = self.logs.node_of
        return tuple(rank for rank in sorted(everyone) if host in (own := self.host_of(rank), nodes.get(own or "")))

    def owner_of(self, host: str | None, pid: int | None) -> int | None:
        """The rank whose own process, or whose child's, has that pid; a host that is not known may be any."""
        for rank in self.ranks.values():
            if pid is not None and pid in (rank.pid, *rank.children) and host in (None, "", rank.host):
                return rank.rank
        found = self.logs.rank_with(host, pid)
        found = found if found is not None else self.launches.rank_with(pid)
        return found if found is not None else self.outer_pids.get(pid)

    def source(self, rank: int, frame: Frame) -> Sourced[SourceFile] | None:
        """The file of a frame, from the rank's own host, else from any: a job runs the same code everywhere."""
        own = self.sources.get((self.host_of(rank) or "", frame.file))
        return own or next((s for key, s in sorted(self.sources.items()) if _is_file_of(key, frame)), None)

    def source_line(self, rank: int, frame: Frame) -> str | None:
        """The text of a frame's line; None where its file was not read."""
        found = self.source(rank, frame)
        return found.record.line(frame.line) if found else None

    def branch(self, rank: int, frame: Frame | None) -> tuple[Artifact, Branch] | None:
        """The innermost rank-dependent branch around a frame's line."""
        found = self.source(rank, frame) if frame else None
        branch = found.record.branch_at(frame.line) if found and frame else None
        return (found.artifact, branch) if found and branch else None

    def locate(self, rank: int, frame: Frame) -> CodeLocation:
        """A frame as a place in the user's code."""
        branch = self.branch(rank, frame)
        return CodeLocation(
            rank=rank,
            file=frame.file,
            line=frame.line,
            function=frame.function,
            source_line=self.source_line(rank, frame),
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
    choice = choose(given.recordings)
    evidence = replace(given, recordings=choice.dumps, gaps=(*given.gaps, *choice.gaps))
    looks = compare_looks(choice.dumps, choice.earlier)
    ranks = _ranks(evidence.processes)
    logs, launches = join_logs(evidence), join_launches(evidence)
    world_size = _world_size(evidence, ranks, logs, launches)
    timelines = build_timelines(evidence.recordings, world_size)
    positions = {**find_interrupted(logs), **find_positions(evidence.stacks, ranks, _told(logs, launches), world_size)}
    seen = {*ranks, *positions, *logs.heard, *(rank for timeline in timelines for rank in timeline.members)}
    # Ranks are numbered from 0 without a hole: who is heard proves those below.
    expected = tuple(range(world_size if world_size is not None else max(seen, default=-1) + 1))
    frontiers, nameless = trust(find_frontiers(evidence.recordings)), find_nameless(evidence.recordings)
    heads = find_heads(evidence.recordings)
    # Groups without a name cannot be matched between ranks.
    mismatches = (find_mismatch(timeline) for timeline in timelines if not nameless)
    case = Case(
        evidence=evidence,
        ranks=ranks,
        world_size=world_size,
        expected=expected,
        timelines=timelines,
        mismatches=tuple(mismatch for mismatch in mismatches if mismatch),
        waits=find_waits(
            heads,
            timelines,
            frontiers,
            _dumped(evidence),
            find_doubtful(timelines, frontiers, nameless),
            damaged=find_damaged(evidence.recordings, heads, frontiers),
            was_moving=looks.is_frozen is False,
        ),
        positions=positions,
        logs=logs,
        standings=find_standings(logs, expected),
        fates=find_fates(logs, expected),
        launches=launches,
        ops=find_op_sequences(evidence.op_traces, logs),
        sources={(s.artifact.host, s.artifact.origin): s for s in evidence.source_files},
        looks=looks,
        devices=find_devices(evidence.gpus),
    )
    return replace(case, positions=tell_locks(case.positions, case.source_line))


def _told(logs: Logs, launches: Launches) -> dict[tuple[str, int], int]:
    """Processes and their ranks, as logs tell them, else RAS where it lists all of them: it names hosts by address."""
    is_whole = launches.process_of and len(launches.process_of) == launches.world_size
    listed = launches.process_of.items() if is_whole else ()
    of_ras = {(host or "", pid): rank for rank, (host, pid) in listed if pid is not None}
    return logs.rank_of or of_ras


def _dumped(evidence: Evidence) -> frozenset[int]:
    return frozenset(s.artifact.rank for s in evidence.recordings if s.artifact.rank is not None)


def _world_size(evidence: Evidence, ranks: dict[int, Rank], logs: Logs, launches: Launches) -> int | None:
    """What the processes' environment says; else the default group of the dumps, the logs, the largest communicator."""
    sizes = {rank.world_size for rank in ranks.values() if rank.world_size is not None}
    if sizes:
        return max(sizes)
    in_dumps = _world_size_in_dumps(evidence)
    if in_dumps is not None:
        return in_dumps
    return logs.world_size if logs.world_size is not None else launches.world_size


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
