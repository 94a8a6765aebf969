"""What a scenario plants its fault into: a job about to enter the step that goes wrong.

In: a job and a random generator. Out: programs, places in them, and ranks to choose from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from ncclprobe.simulate.calls import Call, Host, Program
from ncclprobe.simulate.job import Job

Ops = list[Call | Host]


@dataclass(frozen=True, slots=True)
class Scene:
    """`steps` are the numbers of the steps that the clock runs; the fault belongs into the first."""

    job: Job
    rng: Random
    steps: range

    def program(self, rank: int) -> Ops:
        """A copy of what the rank would do."""
        return list(self.job.program(self.job.stage(rank), self.steps))

    def first_step(self, rank: int) -> Program:
        """What the rank would do in the step that goes wrong."""
        return self.job.step(self.job.stage(rank), self.steps[0])

    def axes(self, rank: int) -> list[str]:
        """The axes on which the rank has peers and issues collectives in the first step."""
        used = dict.fromkeys(op.axis for op in self.first_step(rank) if isinstance(op, Call) and not op.is_p2p)
        return [axis for axis in used if self.job.layout.size(axis) > 1 and self.job.layout.is_member(axis, rank)]

    def any_rank(self) -> int:
        """One of all."""
        return self.rng.randrange(self.job.layout.world_size)

    def minority(self, ranks: Sequence[int], first: int, of: int) -> tuple[int, ...]:
        """`first`, and sometimes one more of `ranks`, where they are few among `of`."""
        others = [rank for rank in ranks if rank != first]
        if others and of >= 6 and self.rng.random() < 0.3:
            return tuple(sorted((first, self.rng.choice(others))))
        return (first,)


def places(program: Program, axis: str) -> list[int]:
    """Where the collectives on an axis are, by their place in the program."""
    return [at for at, op in enumerate(program) if isinstance(op, Call) and op.axis == axis and not op.is_p2p]


def call_at(program: Program, place: int) -> Call:
    """The call there."""
    call = program[place]
    assert isinstance(call, Call)
    return call


def ahead(program: Program, place: int, axis: str) -> int:
    """How many collectives on the axis the host issues after a place before it waits."""
    count = 0
    for op in program[place + 1 :]:
        if op is Host.SYNC:
            break
        count += isinstance(op, Call) and op.axis == axis and not op.is_p2p
    return count


def index_of(program: Program, place: int) -> int:
    """Which of the rank's calls it is, counted from 0."""
    return sum(isinstance(op, Call) for op in program[:place])


def collectives(program: Program, axis: str) -> Iterator[Call]:
    """The collectives on an axis, in order."""
    return (call_at(program, place) for place in places(program, axis))


def divergence(program: Program, changed: Program, axis: str) -> int:
    """The number (from 0, within the run) of the first collective on the axis that is another in `changed`."""
    pairs = zip(collectives(program, axis), collectives(changed, axis), strict=False)
    count = 0
    for one, other in pairs:
        if not one.agrees_with(other):
            break
        count += 1
    return count
