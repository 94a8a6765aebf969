"""A training job: its groups, and the program of each stage of its pipeline.

In: a `JobKind` and a number of ranks. Out: a `Job`. Ranks of one stage run the same program.
"""

import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module

from ncclprobe.model.errors import UsageError
from ncclprobe.simulate import jobs
from ncclprobe.simulate.calls import Call, Host, Program
from ncclprobe.simulate.layout import Layout

StepBuilder = Callable[[Layout, int, bool], Iterable[Call | Host]]
"""The program of one step of a stage (0 without a pipeline); the flag says whether it is a step that logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """A way to train. `lay_out` makes the groups for a number of ranks, and is given what a scenario needs of them."""

    name: str
    lay_out: Callable[[int, frozenset[str]], Layout]
    build_step: StepBuilder
    log_every: int


@dataclass(slots=True)
class Job:
    """`first_step` is the number of the step in which the simulated clock starts; all before it went well."""

    kind: JobKind
    layout: Layout
    first_step: int
    _steps: dict[tuple[int, bool], tuple[Call | Host, ...]] = field(default_factory=dict)
    _calls: dict[object, Call] = field(default_factory=dict)

    @property
    def stages(self) -> int:
        """Stages of the pipeline."""
        return self.layout.degrees.get("pp", 1)

    def stage(self, rank: int) -> int:
        """The stage a rank belongs to."""
        return rank * self.stages // self.layout.world_size

    def peer(self, axis: str, rank: int, stage: int) -> int:
        """The rank's pipeline neighbour of a stage, as numbered inside the group the two talk in."""
        return stage if axis == "pp" else self.layout.axes[axis].member[self.layout.group("pp", rank).ranks[stage]]

    def axes_used(self, rank: int) -> tuple[str, ...]:
        """The axes on which the rank has made a communicator: those it ever calls on, and the default group."""
        ops = (*self.step(self.stage(rank), 0), *self.step(self.stage(rank), 1))
        used = {"world", *(op.axis for op in ops if isinstance(op, Call))}
        return tuple(axis for axis in self.layout.axes_of(rank) if axis in used)

    def step(self, stage: int, number: int) -> tuple[Call | Host, ...]:
        """What a rank of the stage does in one step."""
        key = (stage, self.is_logging(number))
        if key not in self._steps:
            self._steps[key] = tuple(map(self._known, self.kind.build_step(self.layout, *key)))
        return self._steps[key]

    def _known(self, op: Call | Host) -> Call | Host:
        """Equal calls are one object, so that all that follows from a call is worked out once."""
        return self._calls.setdefault(op.key, op) if isinstance(op, Call) else op

    def is_logging(self, number: int) -> bool:
        """Whether metrics are gathered at the end of that step."""
        return number % self.kind.log_every == 0

    def program(self, stage: int, steps: range) -> Program:
        """Several steps in a row."""
        return [op for number in steps for op in self.step(stage, number)]

    def calls_per_step(self) -> int:
        """Entries that a rank of the first stage records in an ordinary step."""
        return sum(op.entries for op in self.step(0, 1) if isinstance(op, Call))


def find_kinds() -> dict[str, JobKind]:
    """Every kind of job, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(jobs.__path__))
    kinds = [import_module(f"{jobs.__name__}.{name}").JOB for name in names]
    return {kind.name: kind for kind in kinds}


def find_kind(name: str) -> JobKind:
    """The kind of that name; UsageError that lists them all otherwise."""
    kinds = find_kinds()
    if name not in kinds:
        raise UsageError(f"there is no kind of job named {name!r}", f"choose one of: {', '.join(kinds)}")
    return kinds[name]
