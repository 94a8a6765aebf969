"""What happened when, as far as the evidence has times: one line for each thing that matters, in order.

In: a `Case`. Out: `Moment`s. Alike events of several ranks are one moment, that of the first. Times are the hosts' own
wall clocks, corrected where the collection measured them; which zone they are in no log says.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.clocks import clock_offsets, corrected
from ncclprobe.analyze.devices import host_of_file, rank_of_gpu
from ncclprobe.analyze.logs import Said
from ncclprobe.model.evidence import Artifact
from ncclprobe.model.folding import fold
from ncclprobe.model.log import Activity, Died, HostDown, Left, NetworkError, PortError, Raised, WorkTimeout
from ncclprobe.model.report import Moment

_MOST = 20
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    when_ns: int
    says: str
    rank: int | None
    host: str
    artifact: Artifact
    line: int


def chronicle(case: Case) -> tuple[Moment, ...]:
    """At most 20 moments, the earliest first; those that say the same are one."""
    alike: dict[str, list[_Event]] = defaultdict(list)
    for event in _events(case):
        alike[event.says].append(event)
    firsts = sorted(alike.values(), key=lambda events: (events[0].when_ns, events[0].says))
    return tuple(_moment(events) for events in firsts[:_MOST])


def _moment(events: list[_Event]) -> Moment:
    first = min(events, key=lambda event: (event.when_ns, event.artifact.path, event.line))
    return Moment(
        when=_text(first.when_ns),
        ranks=fold(event.rank for event in events if event.rank is not None),
        host=first.host if len({event.host for event in events}) == 1 else "",
        says=first.says,
        artifact=first.artifact.path,
        place=f"line {first.line}",
    )


def _text(when_ns: int) -> str:
    """Without a zone: it is the hosts' own time."""
    moment = datetime.fromtimestamp(when_ns // _NS_PER_S, tz=timezone.utc)
    # A log that names no year was read as of 1970: then the year is not known.
    return moment.strftime("%m-%d %H:%M:%S" if moment.year == 1970 else "%Y-%m-%d %H:%M:%S")


def _events(case: Case) -> Iterator[_Event]:
    yield from sorted((*_from_logs(case), *_from_kernels(case)), key=lambda event: (event.when_ns, event.says))


def _from_logs(case: Case) -> Iterator[_Event]:
    for said, work in case.logs.facts(WorkTimeout):
        yield from _at(case, said, f"waiting for {work.op}, call {work.seq}", back_ms=work.ran_ms or 0)
        limit = f" after its timeout of {_duration(work.timeout_ms)}" if work.timeout_ms else ""
        yield from _at(case, said, f"watchdog gave up {work.op}, call {work.seq},{limit}".rstrip(","))
    for fate in case.fates:
        yield from _at(case, fate.said, _failure(fate.said.record.what))
    for said in case.logs.of(Left):
        yield from _at(case, said, "ended in good order")
    for said, host in case.logs.facts(HostDown):
        yield from _at(case, said, f"{host.host} does not answer")
    for said, error in case.logs.facts(NetworkError):
        if not error.is_echo:
            yield from _at(case, said, f"network error{f' on {error.device}' if error.device else ''}")
    for said, port in case.logs.facts(PortError):
        yield from _at(case, said, f"port of {port.device} reports an error")
    for rank in sorted({said.record.rank for said in case.logs.of(Activity) if said.record.rank is not None}):
        last = case.logs.of_rank(rank, Activity)[-1]
        doing = last.record.what.phase if isinstance(last.record.what, Activity) else ""
        yield from _at(case, last, f"last word of its program: {doing}")


def _failure(what: object) -> str:
    if isinstance(what, Raised):
        return f"failed: {what.exception or what.message}"[:100]
    if isinstance(what, Died):
        return f"ended by signal {what.signal}" if what.signal is not None else "ended badly"
    return "failed"


def _at(case: Case, said: Said, says: str, back_ms: int = 0) -> Iterator[_Event]:
    event = said.record
    if event.when_ns is not None:
        yield _Event(
            when_ns=event.when_ns - back_ms * 1_000_000,
            says=says,
            rank=event.rank,
            host=event.host or (case.host_of(event.rank) or "" if event.rank is not None else ""),
            artifact=said.artifact,
            line=event.line,
        )


def _from_kernels(case: Case) -> Iterator[_Event]:
    offsets = clock_offsets(case.evidence.hosts)
    for sourced in case.evidence.oom_kills:
        kill, host = sourced.record, host_of_file(case, sourced.artifact)
        owner = case.owner_of(host, kill.pid)
        when_ns = corrected(kill.when_ns, sourced.artifact.host, offsets)
        if when_ns is not None and owner is not None:
            says = "killed by the kernel for memory"
            yield _Event(
                when_ns=when_ns, says=says, rank=owner, host=host or "", artifact=sourced.artifact, line=kill.line
            )
    for found in case.evidence.xids:
        xid, host = found.record, host_of_file(case, found.artifact)
        when_ns = corrected(xid.when_ns, found.artifact.host, offsets)
        if when_ns is not None:
            yield _Event(
                when_ns=when_ns,
                says=f"Xid {xid.code}: {xid.meaning}",
                rank=rank_of_gpu(case, host, xid.bus_id, xid.pid),
                host=host or "",
                artifact=found.artifact,
                line=xid.line,
            )


def _duration(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    return f"{seconds // 60} min" if seconds >= 120 and seconds % 60 == 0 else f"{seconds} s"
