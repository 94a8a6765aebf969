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
    "torch-2.3": {"version": "1.4"},
}
NOT_YET: dict[str, str] = {}


def _cases() -> list[Any]:
    known = all_scenarios()
    cases = [(s.name, f"{ranks}", ranks, {}) for s in known for ranks in SIZES if s.fits(ranks, None)]
    cases += [(s.name, way, 8, options) for s in known for way, options in WAYS.items()]
    return [_case(name, ranks, options, f"{name}-{way}") for name, way, ranks, options in cases]


def _case(name: str, ranks: int, options: dict[str, Any], label: str) -> Any:
    reason = NOT_YET.get(label)
    marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
    return pytest.param(name, ranks, options, id=label, marks=marks)


@pytest.mark.parametrize(("name", "ranks", "options"), _cases())
def test_the_planted_cause_is_found(name: str, ranks: int, options: dict[str, Any]) -> None:
    for seed in SEEDS:
        made = plan(name, ranks, seed=seed, **options)
        is_right, said = judge(analyze(evidence_of(made)).verdict, truth_of(made))
        assert is_right, f"{_command(name, ranks, seed, options)}  # {said}"


def _command(name: str, ranks: int, seed: int, options: dict[str, Any]) -> str:
    """How to look at it."""
    flags = {"is_json": "--format json", "has_wrapped": "--wrap", "is_active_only": "--empty"}
    words = [flags.get(key) or f"--{key.replace('drop', 'drop-dumps')} {value}" for key, value in options.items()]
    return " ".join(["ncclprobe simulate", name, f"--ranks {ranks} --seed {seed}", *words, "-o DIR"])
