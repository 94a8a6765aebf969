"""What is wrong with the settings of a job's ranks.

In: `RankSettings`, one a rank, or that of a shell. Out: `Advice`, the same for several ranks once, the worst first.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ncclprobe.model.checkup import Advice, Level, RankSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that may be wrong with a rank's settings.

    `find` says what is wrong with these, or None. `applies`: of which versions of torch or NCCL it is true.
    """

    name: str
    level: Level
    find: Callable[[RankSettings], str | None]
    action: str
    applies: str


Complaint = tuple[tuple[int, ...], str]  # ranks, text


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRule:
    """One thing that may be wrong between ranks."""

    name: str
    level: Level
    find: Callable[[Sequence[RankSettings]], Iterator[Complaint]]
    action: str
    applies: str


def lint(settings: Sequence[RankSettings], rules: Iterable[Rule], job_rules: Iterable[JobRule] = ()) -> list[Advice]:
    """All advice; the same about many ranks is one."""
    found: list[Advice] = []
    for rule in rules:
        ranks: dict[str, set[int]] = defaultdict(set)
        for one in settings:
            text = rule.find(one)
            if text is not None:
                ranks[text] |= {one.rank} if one.rank is not None else set()
        found += [_advice(rule, (tuple(sorted(members)), text)) for text, members in ranks.items()]
    for job_rule in job_rules:
        found += [_advice(job_rule, complaint) for complaint in job_rule.find(settings)]
    return sorted(found, key=lambda advice: (advice.level is not Level.PROBLEM, advice.rule, advice.ranks))


def _advice(rule: Rule | JobRule, complaint: Complaint) -> Advice:
    ranks, text = complaint
    return Advice(level=rule.level, rule=rule.name, ranks=ranks, text=text, action=rule.action, applies=rule.applies)
