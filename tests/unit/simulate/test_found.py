"""The analyzer finds what is planted, and blames nobody else when evidence is missing.

What it does not find yet is marked, with the reason, and must come out of the list when it does.
"""

from typing import Any

import pytest

from ncclprobe.analyze.verdict import analyze
from ncclprobe.simulate.scenario import all_scenarios
from ncclprobe.simulate.simulation import truth_of
from ncclprobe.simulate.truth import judge
from tests.unit.simulate.simulated import evidence_of, plan

SIZES = (2, 8, 24)
SEEDS = (0, 1)
WAYS: dict[str, dict[str, Any]] = {
    "no-frames": {"is_json": True},
    "one-lost": {"drop": "1"},
    "guilty-lost": {"drop": "guilty"},
    "wrapped": {"has_wrapped": True},
    "only-active": {"is_active_only": True},
    "active-and-skewed": {"is_active_only": True, "skew_s": 1.0},
    "torch-2.3": {"version": "1.4"},
    "torch-2.2": {"version": "list"},
}
NOT_YET: dict[str, str] = {}

# Seeds that a longer search has found worth keeping.
FOUND_HARD = (
    ("rank-exited/early", 16, 10, "torch-2.2"),
    ("collective-extra/blocking", 12, 10, None),
    ("collective-extra/blocking", 3, 12, "wrapped"),
    ("collective-skipped/blocking", 3, 12, "wrapped"),
    ("group-order-deadlock/ring", 12, 10, "wrapped"),
    ("group-order-deadlock/ring", 12, 13, None),
    ("collective-skipped/continuing", 32, 14, None),
    ("collective-skipped/other-group", 32, 13, None),
    ("progressing/logging", 32, 10, None),
    ("progressing/skewed", 32, 14, None),
    ("progressing/skewed", 48, 111, "active-and-skewed"),
    ("stuck-in-python/before-logging", 12, 105, "only-active"),
    ("collective-skipped/continuing", 2, 105, None),
    ("collective-extra/blocking", 16, 308, None),
)


def _cases() -> list[Any]:
    known = all_scenarios()
    cases = [(f"{s.name}-{n}", s.name, n, SEEDS, {}) for s in known for n in SIZES if s.fits(n, None)]
    cases += [(f"{s.name}-{way}", s.name, 8, SEEDS, options) for s in known for way, options in WAYS.items()]
    for name, ranks, seed, way in FOUND_HARD:
        label = f"{name}-{ranks}-seed-{seed}" + (f"-{way}" if way else "")
        cases.append((label, name, ranks, (seed,), WAYS[way] if way else {}))
    return [pytest.param(*case, id=label, marks=_marks(label)) for label, *case in cases]


def _marks(label: str) -> list[pytest.MarkDecorator]:
    reason = NOT_YET.get(label)
    return [pytest.mark.xfail(strict=True, reason=reason)] if reason else []


@pytest.mark.parametrize(("name", "ranks", "seeds", "options"), _cases())
def test_the_planted_cause_is_found(name: str, ranks: int, seeds: tuple[int, ...], options: dict[str, Any]) -> None:
    for seed in seeds:
        made = plan(name, ranks, seed=seed, **options)
        is_right, said = judge(analyze(evidence_of(made)).verdict, truth_of(made))
        assert is_right, f"{_command(name, ranks, seed, options)}  # {said}"


def _command(name: str, ranks: int, seed: int, options: dict[str, Any]) -> str:
    """How to look at it."""
    flags = {"is_json": "--format json", "has_wrapped": "--wrap", "is_active_only": "--empty"}
    words = [
        flags.get(key) or f"--{key.replace('drop', 'drop-dumps').replace('skew_s', 'skew')} {value}"
        for key, value in options.items()
    ]
    return " ".join(["ncclprobe simulate", name, f"--ranks {ranks} --seed {seed}", *words, "-o DIR"])
