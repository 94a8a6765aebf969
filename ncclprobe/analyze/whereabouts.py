"""What ranks do that others wait for, by their stacks, else by what their program says.

In: a `Case` and ranks. Out: a cause, in words what they do, and what shows it.
"""

from dataclasses import dataclass

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.logs import Said, cite_said, is_before
from ncclprobe.analyze.phases import Phase
from ncclprobe.analyze.positions import Position
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.frames import telling_frame
from ncclprobe.model.log import Activity, GilStuck, StoreTimeout, WatchdogStuck, WorkTimeout
from ncclprobe.model.report import Cause, CodeLocation

CAUSES = {
    Phase.DATA: Cause.STUCK_IN_DATALOADER,
    Phase.CHECKPOINT: Cause.STUCK_IN_CHECKPOINT,
    Phase.PREPROCESSING: Cause.STUCK_IN_PREPROCESSING,
    Phase.EVALUATION: Cause.STUCK_IN_EVALUATION,
    Phase.LOGGING: Cause.STUCK_IN_LOGGING,
    Phase.COMPILE: Cause.STUCK_IN_COMPILE,
    Phase.LOCK: Cause.STUCK_ON_LOCK,
    Phase.DEBUGGER: Cause.STUCK_IN_PYTHON,
    Phase.PROMPT: Cause.STUCK_IN_PYTHON,
    Phase.PYTHON: Cause.STUCK_IN_PYTHON,
    Phase.SYNC: Cause.STUCK_IN_CUDA,
    Phase.EXIT: Cause.RANK_EXITED,
    Phase.COLLECTIVE: Cause.COLLECTIVE_SKIPPED,
    Phase.P2P: Cause.COLLECTIVE_SKIPPED,
}
_BY_WORDS = {str(phase): cause for phase, cause in CAUSES.items() if phase not in (Phase.COLLECTIVE, Phase.P2P)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """`shown_by`: `stacks`, `log` or None when nothing shows what the ranks do; then the cause is a bare absence."""

    cause: Cause
    doing: str
    shown_by: str | None = None
    citations: tuple[Citation, ...] = ()
    places: tuple[CodeLocation, ...] = ()
    activities: tuple[Said, ...] = ()


def find_whereabouts(case: Case, ranks: tuple[int, ...]) -> Whereabouts:
    """Of all the ranks; where those that were looked into disagree, what most do."""
    seen = [case.positions[rank] for rank in ranks if rank in case.positions]
    told = [position for position in seen if position.phase in CAUSES]
    if told:
        return _by_stacks(case, told)
    held = [said for rank in ranks for said in case.logs.of_rank(rank, GilStuck)]
    if held:
        return _held_up(held[0], Cause.STUCK_ON_LOCK, "another thread of it holds the interpreter lock")
    said = [found for rank in ranks if (found := last_activity(case, rank))] or anonymous_activities(case, ranks)
    if said:
        return _by_words(said)
    stuck = [said for rank in ranks for said in case.logs.of_rank(rank, WatchdogStuck)]
    if stuck:
        return _held_up(stuck[0], Cause.STUCK_IN_CUDA, "its watchdog is blocked in CUDA, or waits for a lock")
    return Whereabouts(cause=Cause.STUCK_IN_PYTHON, doing="what they do instead is not known")


def shown_ranks(case: Case, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Those of them of which something shows what they do."""
    if len(ranks) == 1:
        return ranks if find_whereabouts(case, ranks).shown_by else ()
    stuck = {said.record.rank for said in case.logs.of(GilStuck, WatchdogStuck)}
    told = {rank for rank in ranks if rank in case.positions and case.positions[rank].phase in CAUSES}
    return tuple(rank for rank in ranks if rank in told or rank in stuck or last_activity(case, rank))


def _held_up(said: Said, cause: Cause, doing: str) -> Whereabouts:
    """By what torch's own monitor says of the rank."""
    return Whereabouts(cause=cause, doing=doing, shown_by="log", citations=(cite_said(said, doing),))


def _by_stacks(case: Case, positions: list[Position]) -> Whereabouts:
    phases = [position.phase for position in positions]
    phase = max(phases, key=phases.count)
    alike = [position for position in positions if position.phase is phase]
    frames = [(p, p.user_frame or telling_frame(p.stack) or p.place.frame) for p in alike[:2]]
    return Whereabouts(
        cause=CAUSES[phase],
        doing=str(phase),
        shown_by="stacks",
        citations=tuple(cite(p.artifact, "MainThread", str(f), f"rank {p.rank}: {phase}") for p, f in frames),
        places=tuple(case.locate(p.rank, f) for p, f in frames if f),
    )


def last_activity(case: Case, rank: int) -> Said | None:
    """The last thing the rank's program said it does, unless that is training: then it tells nothing."""
    said = case.logs.of_rank(rank, Activity)
    what = said[-1].record.what if said else None
    return said[-1] if isinstance(what, Activity) and what.phase in _BY_WORDS and not _is_done(what) else None


def anonymous_activities(case: Case, ranks: tuple[int, ...]) -> list[Said]:
    """A line without a rank that comes while the others wait is of the one that does not.

    An earlier one is of the process that prints for all, most often: rank 0.
    """
    if len(ranks) != 1:
        return []
    waits = list(case.logs.of(WorkTimeout, StoreTimeout))
    said = [s for s in case.logs.of(Activity) if s.record.rank is None and (ranks == (0,) or _is_during(s, waits))]
    last = said[-1].record.what if said else None
    return said[-1:] if isinstance(last, Activity) and last.phase in _BY_WORDS and not _is_done(last) else []


def _is_done(what: Activity) -> bool:
    """Whether it tells of work that is over: what the rank does since is not said."""
    return what.progress is not None and what.progress[0] >= what.progress[1] > 0


def _is_during(said: Said, waits: list[Said]) -> bool:
    """Whether a line was written after another rank had begun to wait, as far as clocks or one file tell."""
    return any(_began_before(wait, said) or is_before(wait, said) is True for wait in waits)


def _began_before(wait: Said, said: Said) -> bool:
    what, end_ns, when_ns = wait.record.what, wait.record.when_ns, said.record.when_ns
    waited_ms = (
        what.ran_ms if isinstance(what, WorkTimeout) else what.timeout_ms if isinstance(what, StoreTimeout) else None
    )
    return None not in (waited_ms, end_ns, when_ns) and (end_ns or 0) - (waited_ms or 0) * 1_000_000 < (when_ns or 0)


def _by_words(said: list[Said]) -> Whereabouts:
    phases = [s.record.what.phase for s in said if isinstance(s.record.what, Activity)]
    phase = max(phases, key=phases.count)
    alike = [s for s in said if isinstance(s.record.what, Activity) and s.record.what.phase == phase]
    return Whereabouts(
        cause=_BY_WORDS[phase],
        doing=phase,
        shown_by="log",
        citations=tuple(cite_said(s, f"{_who(s)} says what it does: {phase}") for s in alike[:2]),
        activities=tuple(alike),
    )


def _who(said: Said) -> str:
    return name_ranks([said.record.rank]) if said.record.rank is not None else "a line without a rank"
