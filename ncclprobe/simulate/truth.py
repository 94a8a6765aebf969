"""What is true of a simulated job, and whether a verdict says so.

In: what a scenario planted. Out: `Truth`, which is `truth.json`, and a judgement on a verdict.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from ncclprobe.model.folding import name_ranks
from ncclprobe.model.frames import Frame
from ncclprobe.model.report import Cause, Confidence, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The planted cause and its place.

    `also_accept`: causes a fair judge accepts, because these dumps cannot tell them apart; `also_accept_guilty`: sets
    of ranks likewise. `seq` is the first call that shows it, None where no collective does; `where` its line in the
    script. `dropped` ranks left no dump. Not `is_all_there`: evidence is missing without which the answer may be none.
    """

    scenario: str
    cause: Cause
    guilty_ranks: tuple[int, ...]
    also_accept: tuple[Cause, ...] = ()
    also_accept_guilty: tuple[tuple[int, ...], ...] = ()
    group: str | None = None
    seq: int | None = None
    op: str | None = None
    where: Frame | None = None
    note: str
    world_size: int
    seed: int
    dropped: tuple[int, ...] = ()
    is_all_there: bool = True

    @property
    def never_blame(self) -> tuple[int, ...]:
        """Ranks that are in no accepted set."""
        accused = {*self.guilty_ranks, *(rank for ranks in self.also_accept_guilty for rank in ranks)}
        return tuple(rank for rank in range(self.world_size) if rank not in accused)

    def to_json(self) -> str:
        """`truth.json`."""
        fields = {
            "cause": self.cause.value,
            "guilty_ranks": self.guilty_ranks,
            "also_accept": [cause.value for cause in self.also_accept],
            "also_accept_guilty": self.also_accept_guilty,
            "never_blame": self.never_blame,
            "group": self.group,
            "seq": self.seq,
            "op": self.op,
            "where": asdict(self.where) if self.where else None,
            "note": self.note,
            "scenario": self.scenario,
            "world_size": self.world_size,
            "seed": self.seed,
            "dropped": self.dropped,
            "is_all_there": self.is_all_there,
        }
        lines = (f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in fields.items())
        return "{\n" + ",\n".join(lines) + "\n}\n"


def judge(verdict: Verdict, truth: Truth) -> tuple[bool, str]:
    """Whether the verdict is right, and the reason.

    With all evidence it must name an accepted cause and an accepted set of ranks; `inconclusive` names nobody. With
    less, or of a healthy job, it may also say nothing, or something wrong but only possible. Never may it name an
    innocent as certain or probable.
    """
    blamed = verdict.guilty_ranks
    if set(blamed) & set(truth.never_blame) and (truth.is_all_there or verdict.confidence is not Confidence.POSSIBLE):
        innocents = set(blamed) & set(truth.never_blame)
        return False, f"it blames {name_ranks(innocents)} ({verdict.cause}, {verdict.confidence}); {_expected(truth)}"
    if not truth.is_all_there:
        return True, "it blames no innocent rank"
    if truth.cause is Cause.PROGRESSING and not blamed and verdict.confidence is Confidence.POSSIBLE:
        return True, "it names nobody, and is not sure: one look cannot be"
    if verdict.cause not in (truth.cause, *truth.also_accept):
        return False, f"it says {verdict.cause} of {name_ranks(blamed)}; {_expected(truth)}"
    if verdict.cause is not Cause.INCONCLUSIVE and not _is_accepted(blamed, truth):
        return False, f"it blames {name_ranks(blamed)} ({verdict.cause}); {_expected(truth)}"
    return True, f"{verdict.cause} of {name_ranks(blamed)}"


def _is_accepted(ranks: Iterable[int], truth: Truth) -> bool:
    return set(ranks) in [set(truth.guilty_ranks), *map(set, truth.also_accept_guilty)]


def _expected(truth: Truth) -> str:
    return f"planted is {truth.cause} by {name_ranks(truth.guilty_ranks)}"
