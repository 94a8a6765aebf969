"""What a scenario is, and which there are.

In: the modules of `simulate/causes`. Out: their scenarios, by name: a cause, a slash, and how it comes about.
"""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module

from ncclprobe.model.errors import UsageError
from ncclprobe.model.report import Cause
from ncclprobe.simulate import causes
from ncclprobe.simulate.calls import Call, Program
from ncclprobe.simulate.clock import Broken
from ncclprobe.simulate.scene import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A fault: what changed ranks run, what is broken, and who is guilty.

    `axis`, `rank` and `number` point to the first call that shows it: which of the collectives on that axis, from 0
    within the run, in the group of that rank. `gone` ranks have exited and leave no dump. `is_running`: nothing hangs.
    `shown` is that call. `needs_history`: calls that have ended are needed to tell who has left the common path;
    `is_told_by_type`: nothing but the type of a tensor shows it, which torch records from 2.4 on.
    """

    guilty: tuple[int, ...]
    note: str
    programs: Mapping[int, Program] = field(default_factory=dict)
    broken: Broken = field(default_factory=Broken)
    gone: frozenset[int] = frozenset()
    is_running: bool = False
    axis: str | None = None
    rank: int = 0
    number: int | None = None
    shown: Call | None = None
    also_accept: tuple[Cause, ...] = ()
    also_accept_without_frames: tuple[Cause, ...] = ()
    also_accept_guilty: tuple[tuple[int, ...], ...] = ()
    needs_history: bool = False
    is_told_by_type: bool = False


class CannotPlantError(Exception):
    """The job has no place for the fault: too few ranks in its groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A way to hang, or nearly so. `jobs` it can happen in; `needs` of their layout; `is_at_log`: in a logging step."""

    name: str
    cause: Cause
    summary: str
    jobs: tuple[str, ...]
    plant: Callable[[Scene], Planted]
    needs: frozenset[str] = frozenset()
    min_ranks: int = 2
    max_ranks: int | None = None
    is_at_log: bool = False

    def fits(self, ranks: int, job: str | None) -> bool:
        """Whether so many ranks of that kind of job (None is any) can show it."""
        is_in_range = self.min_ranks <= ranks and (self.max_ranks is None or ranks <= self.max_ranks)
        return is_in_range and (job is None or job in self.jobs)


def all_scenarios() -> tuple[Scenario, ...]:
    """Every scenario, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(causes.__path__))
    found = [scenario for name in names for scenario in import_module(f"{causes.__name__}.{name}").SCENARIOS]
    return tuple(sorted(found, key=lambda scenario: scenario.name))


def candidates(name: str, ranks: int, job: str | None) -> list[Scenario]:
    """The scenario of that name, or all of that cause, that may fit. UsageError where there is none."""
    known = all_scenarios()
    named = [scenario for scenario in known if name in (scenario.name, scenario.cause.value)]
    if not named:
        words = sorted({*(scenario.cause.value for scenario in known), *(scenario.name for scenario in known)})
        near = get_close_matches(name, words, n=3, cutoff=0.5) or sorted({s.cause.value for s in known})
        raise UsageError(f"nothing named {name!r} can be simulated", f"try one of: {', '.join(near)}")
    fitting = [scenario for scenario in named if scenario.fits(ranks, job)]
    if not fitting:
        raise UsageError(
            f"{name} cannot happen to {ranks} ranks" + (f" of a {job} job" if job else ""),
            "; ".join(f"{scenario.name}: {_bounds(scenario)}" for scenario in named),
        )
    return fitting


def too_small(name: str, ranks: int) -> UsageError:
    """What to say where the groups of so few ranks are too small."""
    return UsageError(f"{name} finds no place among {ranks} ranks", "take more, and a number with factors: 8, 16, 64")


def _bounds(scenario: Scenario) -> str:
    most = f" to {scenario.max_ranks}" if scenario.max_ranks is not None else " or more"
    return f"{scenario.min_ranks}{most} ranks of {', '.join(scenario.jobs)}"
