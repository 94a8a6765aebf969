"""What the logs tell, with every event given to its rank as far as anything shows whose it is.

In: log events, speakers, communicators. Out: `Logs`: events by kind of fact, in order of time, and who was heard.

A line names its writer by a global rank, by host and pid, or not at all; what other lines say of the same process joins
them. Times of different hosts are compared as they are printed: no log says its zone.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TypeVar

from ncclprobe.analyze.attempts import last_attempt
from ncclprobe.analyze.clocks import clock_offsets, corrected
from ncclprobe.analyze.communicators import ranks_by_process
from ncclprobe.analyze.group_members import Members, find_members
from ncclprobe.analyze.other_jobs import of_one_job
from ncclprobe.analyze.writers import name_writers, nodes_of_pods
from ncclprobe.model.evidence import Citation
from ncclprobe.model.job import Role
from ncclprobe.model.log import (
    Aborted,
    BarrierMissing,
    CommEvent,
    DesyncReport,
    Died,
    DumpSignal,
    DumpWritten,
    Fingerprint,
    GilStuck,
    GroupProgress,
    Left,
    LogEvent,
    PeerLost,
    Raised,
    RemoteError,
    Setting,
    Speaker,
    StoppedByLauncher,
    StoreTimeout,
    StoreUnreachable,
    StoreWait,
    WatchdogStuck,
    WorkTimeout,
    WorldSize,
)
from ncclprobe.model.records import Evidence, Sourced

Said = Sourced[LogEvent]
_OF_AN_END = (
    *(Aborted, BarrierMissing, DesyncReport, Died, DumpSignal, DumpWritten, Fingerprint, GilStuck, GroupProgress, Left),
    *(PeerLost, Raised, RemoteError, StoppedByLauncher, StoreTimeout, StoreUnreachable, StoreWait, WatchdogStuck),
    WorkTimeout,
)
Fact = TypeVar("Fact")
Process = tuple[str, int]
_WORDS = re.compile(r"[a-z0-9]+")
_MAX_WORDS = 40
_YEAR_NS = 31_556_952 * 1_000_000_000  # the mean Gregorian year
# [rank3]:[E901 05:20:03.01 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank 3] , or [Rank 3]
_PREFIX = re.compile(r"^(?:\[rank\d+\]:)?\[[EWI]\d* ?[^\]]*\] (?:\[(?:PG|Rank) [^\]]*\] +)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """`by_fact`: events by the class of their fact, in order of time. `heard`: ranks with a line of their own.

    `node_of`: pod -> the node that it is on. `members`: of process groups. `foreign`: files of another job, left out.
    """

    by_fact: dict[type, tuple[Said, ...]] = field(default_factory=dict)
    by_rank: dict[tuple[type, int], tuple[Said, ...]] = field(default_factory=dict)
    heard: frozenset[int] = frozenset()
    speakers: dict[int, Sourced[Speaker]] = field(default_factory=dict)
    rank_of: dict[Process, int] = field(default_factory=dict)
    host_of: dict[int, str] = field(default_factory=dict)
    node_of: dict[str, str] = field(default_factory=dict)
    world_size: int | None = None
    members: Members = field(default_factory=Members)
    foreign: tuple[str, ...] = ()

    def of(self, *facts: type) -> Iterator[Said]:
        """Events of these facts."""
        for fact in facts:
            yield from self.by_fact.get(fact, ())

    def facts(self, fact: type[Fact]) -> Iterator[tuple[Said, Fact]]:
        """Events of one kind of fact, each with the fact."""
        for said in self.by_fact.get(fact, ()):
            if isinstance(said.record.what, fact):
                yield said, said.record.what

    def of_rank(self, rank: int, *facts: type) -> list[Said]:
        """Those of one rank, in order."""
        return sorted((said for fact in facts for said in self.by_rank.get((fact, rank), ())), key=moment)

    def rank_with(self, host: str | None, pid: int | None) -> int | None:
        """The rank of a process; by its pid alone where only one host has a process with it."""
        if pid is None:
            return None
        if host and (host, pid) in self.rank_of:
            return self.rank_of[host, pid]
        ranks = {rank for (_, other), rank in self.rank_of.items() if other == pid}
        return ranks.pop() if len(ranks) == 1 and not host else None

    def ranks_on(self, host: str) -> tuple[int, ...]:
        """Ranks known to run there, or in a pod there."""
        return tuple(sorted(rank for rank, other in self.host_of.items() if host in (other, self.node_of.get(other))))


def moment(said: Said) -> tuple[int, str, int]:
    """Where an event stands in time: by its clock, else behind the last of its file that has one, else first."""
    event = said.record
    ns = event.when_ns if event.when_ns is not None else event.after_ns
    return ns or 0, said.artifact.path, event.place


def is_before(one: Said, other: Said) -> bool | None:
    """Whether one event was earlier; None when nothing tells. The clock is trusted before the order of the file."""
    if one.record.when_ns is not None and other.record.when_ns is not None:
        return one.record.when_ns < other.record.when_ns
    return one.record.place < other.record.place if one.artifact.path == other.artifact.path else None


def cite_said(said: Said, says: str) -> Citation:
    """The line, without the logger's own prefix: the place leads to the whole of it."""
    quote = _PREFIX.sub("", said.record.quote)[:200]
    return Citation(artifact=said.artifact.path, place=f"line {said.record.line}", quote=quote, says=says)


def join_logs(evidence: Evidence) -> Logs:
    """The same for any order of files."""
    given, foreign = of_one_job(_with_hosts(evidence))
    events = name_writers(last_attempt(given, evidence.gaps), evidence.speakers)
    rank_of = _processes(events, evidence)
    alive = _alive(evidence)
    ranked = [_with_rank(event, rank_of) for event in events]
    members = find_members(ranked, evidence.recordings)
    said = [event for event in (_as_member(event, members) for event in ranked) if not _is_past(event, alive)]
    by_fact: dict[type, list[Said]] = defaultdict(list)
    by_rank: dict[tuple[type, int], list[Said]] = defaultdict(list)
    for event in sorted(_in_place(_with_years(said)), key=moment):
        by_fact[type(event.record.what)].append(event)
        if event.record.rank is not None:
            by_rank[type(event.record.what), event.record.rank].append(event)
    speakers = _speakers(evidence.speakers, rank_of)
    heard = {event.record.rank for event in said if event.record.rank is not None}
    return Logs(
        by_fact={fact: tuple(those) for fact, those in by_fact.items()},
        by_rank={key: tuple(those) for key, those in by_rank.items()},
        heard=frozenset(heard | set(speakers)),
        speakers=speakers,
        rank_of=rank_of,
        host_of=_hosts(said, rank_of),
        node_of=dict(nodes_of_pods(said)),
        world_size=_world_size(said),
        members=members,
        foreign=foreign,
    )


def _with_hosts(evidence: Evidence) -> list[Said]:
    """Lines without a host are of the file's host: the one it was collected from, or the one its name holds.

    Times are brought to one clock, where the collection measured those of the hosts.
    """
    hosts = {said.record.host for said in evidence.log_events if said.record.host}
    hosts |= {host.name for host in evidence.hosts}
    own: dict[str, str | None] = {}
    for said in evidence.log_events:
        path = said.artifact.path
        if path not in own:
            own[path] = said.artifact.host or host_in_name(path, hosts)
    offsets = clock_offsets(evidence.hosts)
    return [_placed(said, own[said.artifact.path], offsets) for said in evidence.log_events]


def _placed(said: Said, host: str | None, offsets: Mapping[str, int]) -> Said:
    event = said.record
    when_ns = corrected(event.when_ns, said.artifact.host, offsets)
    if (event.host or not host) and when_ns == event.when_ns:
        return said
    return replace(said, record=replace(event, host=event.host or host, when_ns=when_ns))


def host_in_name(path: str, hosts: Iterable[str]) -> str | None:
    """The known host whose name is a word of the file's name: `dmesg-node02.txt`, `nccl.node01.30441.log`."""
    words = _runs_of_words(path.rpartition("/")[2].lower())
    named = {host for host in hosts if host.lower() in words or host.lower().partition(".")[0] in words}
    # `node-1` is a word of `dmesg-node-1-2.txt`, and so is `node-1-2`: the longer one is meant.
    longest = {host for host in named if not any(host != other and host in other for other in named)}
    return longest.pop() if len(longest) == 1 else None


def _runs_of_words(name: str) -> set[str]:
    """Whatever of a name begins and ends with a word: `dmesg`, `dmesg-gpu`, `gpu-b`, ..."""
    spans = [found.span() for found in _WORDS.finditer(name)][:_MAX_WORDS]
    return {name[start:end] for place, (start, _) in enumerate(spans) for _, end in spans[place:]}


def _processes(events: list[Said], evidence: Evidence) -> dict[Process, int]:
    """Processes and their ranks: from /proc, from lines that name both, from the communicator of all ranks."""
    found: dict[Process, int] = {}
    for said in events:
        event = said.record
        if event.rank is not None and event.pid is not None:
            found.setdefault((event.host or "", event.pid), event.rank)
    for sourced in evidence.speakers:
        speaker = sourced.record
        if speaker.rank is not None and speaker.pid is not None:
            found.setdefault((speaker.host or "", speaker.pid), speaker.rank)
    comms = ranks_by_process(
        [said.record for said in events if isinstance(said.record.what, CommEvent)], _world_size(events)
    )
    # A group whose members other lines number otherwise is not that of all ranks.
    if all(found.get(process, rank) == rank for process, rank in comms.items()):
        found.update(comms)
    for process in evidence.processes:
        record, host = process.record, process.artifact.host
        if record.rank is not None and record.inner_pid is not None:
            found.setdefault((host, record.inner_pid), record.rank)
    for process in evidence.processes:
        if process.record.rank is not None:
            found[process.artifact.host, process.record.pid] = process.record.rank
    return found


def _alive(evidence: Evidence) -> frozenset[int]:
    """Ranks whose process was looked at."""
    seen = (process.record for process in evidence.processes)
    return frozenset(p.rank for p in seen if p.role is Role.RANK and p.rank is not None and p.looks)


def _is_past(said: Said, alive: frozenset[int]) -> bool:
    """A rank that lives has survived what its log tells of an end or a hang: that was another one, or was handled."""
    return said.record.rank in alive and isinstance(said.record.what, _OF_AN_END)


def _with_rank(said: Said, rank_of: dict[Process, int]) -> Said:
    event = said.record
    if event.rank is not None:
        return said
    rank = said.artifact.rank
    if rank is None and event.pid is not None:
        rank = rank_of.get((event.host or "", event.pid))
        if rank is None:
            fitting = {rank for (host, pid), rank in rank_of.items() if pid == event.pid and not (host and event.host)}
            rank = fitting.pop() if len(fitting) == 1 else None
    return said if rank is None else replace(said, record=replace(event, rank=rank))


def _as_member(said: Said, members: Members) -> Said:
    rank = members.rank(said.record.group) if said.record.rank is None else None
    return said if rank is None else replace(said, record=replace(said.record, rank=rank))


def _with_years(events: list[Said]) -> list[Said]:
    """A log without a year was read as of 1970: the others' year is its year."""
    years = [said.record.when_ns // _YEAR_NS for said in events if said.record.when_ns is not None]
    dated = [year for year in years if year > 0]
    if not dated or len(dated) == len(years):
        return events
    shift_ns = _start_ns(1970 + max(set(dated), key=dated.count))
    return [_shifted(said, shift_ns) for said in events]


def _in_place(events: list[Said]) -> Iterator[Said]:
    """Those without a time come after the ones before them in their file."""
    last: dict[str, int] = {}
    for said in sorted(events, key=lambda said: (said.artifact.path, said.record.place)):
        path, when_ns = said.artifact.path, said.record.when_ns
        if when_ns is not None:
            last[path] = when_ns
        is_placed = when_ns is None and path in last
        yield replace(said, record=replace(said.record, after_ns=last[path])) if is_placed else said


def _start_ns(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp()) * 1_000_000_000


def _shifted(said: Said, shift_ns: int) -> Said:
    when_ns = said.record.when_ns
    if when_ns is None or when_ns >= _YEAR_NS:
        return said
    return replace(said, record=replace(said.record, when_ns=when_ns + shift_ns))


def _speakers(speakers: Iterable[Sourced[Speaker]], rank_of: dict[Process, int]) -> dict[int, Sourced[Speaker]]:
    """The last words of each rank."""
    found: dict[int, Sourced[Speaker]] = {}
    for sourced in speakers:
        speaker = sourced.record
        rank = speaker.rank if speaker.rank is not None else sourced.artifact.rank
        if rank is None and speaker.pid is not None:
            rank = rank_of.get((speaker.host or "", speaker.pid))
        rival = found.get(rank) if rank is not None else None
        if rank is not None and (rival is None or _last(rival) < _last(sourced)):
            found[rank] = sourced
    return dict(sorted(found.items()))


def _last(sourced: Sourced[Speaker]) -> tuple[int, str, int]:
    return sourced.record.last_ns or 0, sourced.artifact.path, sourced.record.last_line


def _hosts(events: list[Said], rank_of: dict[Process, int]) -> dict[int, str]:
    """Where each rank runs, where all that is said of it agrees."""
    hosts: dict[int, set[str]] = defaultdict(set)
    for (host, _), rank in rank_of.items():
        if host:
            hosts[rank].add(host)
    for said in events:
        if said.record.rank is not None and said.record.host and said.record.rank not in hosts:
            hosts[said.record.rank].add(said.record.host)
    return {rank: names.pop() for rank, names in sorted(hosts.items()) if len(names) == 1}


def _world_size(events: list[Said]) -> int | None:
    """What lines say of it; else the largest communicator, unless a rank is named that it has no place for."""
    said = [event.record.what.size for event in events if isinstance(event.record.what, WorldSize)]
    settings = (event.record.what for event in events if isinstance(event.record.what, Setting))
    said += [int(s.value) for s in settings if s.name == "WORLD_SIZE" and s.value.isdigit()]
    if said:
        return max(set(said), key=lambda size: (said.count(size), size))
    in_store = _world_size_in_store(events)
    if in_store is not None:
        return in_store
    largest = max((event.record.what.size for event in events if isinstance(event.record.what, CommEvent)), default=0)
    named = (event.record.rank if event.record.rank is not None else event.artifact.rank for event in events)
    return largest if largest > max((rank for rank in named if rank is not None), default=0) else None


def _world_size_in_store(events: list[Said]) -> int | None:
    """What several waiting ranks say alike, unless one of them has no place in it."""
    waits = [event.record.what for event in events if isinstance(event.record.what, StoreWait)]
    sizes = {wait.world_size for wait in waits} - {None}
    ranks = {wait.rank for wait in waits}
    size = sizes.pop() if len(sizes) == 1 and len(ranks) > 1 else None
    return size if size is not None and max(ranks) < size else None
