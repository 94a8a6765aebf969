"""Each case in `tests/cases`: what an engineer has in hand, and the answer that was written by hand before any run.

`expected.json` says more answers than one where a fair judge would take them; `guilty_ranks` of null is not compared.
"""

import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ncclprobe.analyze.verdict import analyze
from ncclprobe.inputs import open_inputs
from ncclprobe.loading import load_items
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import Cause, Confidence, Verdict

CASES = Path(__file__).parent.parent / "cases"
NAMES = sorted(path.parent.name for path in CASES.glob("*/expected.json"))
NOT_YET: dict[str, str] = {}
BLAMES_YET: dict[str, str] = {}


def _marked(not_yet: dict[str, str]) -> Iterator[Any]:
    """All cases; those whose truth the analyzer does not find yet fail, and must leave the list once it does."""
    for name in NAMES:
        reason = not_yet.get(name)
        yield pytest.param(name, id=name, marks=[pytest.mark.xfail(strict=True, reason=reason)] if reason else [])


def verdict_on(directory: Path) -> Verdict:
    with open_inputs([directory]) as inputs:
        return analyze(load_items(inputs.items, inputs.hosts, inputs.gaps)).verdict


@cache
def verdict_of(name: str) -> Verdict:
    return verdict_on(CASES / name / "input")


def expected_of(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((CASES / name / "expected.json").read_text())
    return loaded


def files_of(name: str) -> list[Path]:
    return sorted(path for path in (CASES / name / "input").rglob("*") if path.is_file())


@pytest.mark.parametrize("name", list(_marked(NOT_YET)))
def test_the_verdict_is_the_truth(name: str) -> None:
    expected, verdict = expected_of(name), verdict_of(name)
    said = f"{verdict.cause} by {name_ranks(verdict.guilty_ranks)}, {verdict.confidence}: {verdict.summary}"
    assert verdict.cause.value in (expected["cause"], *expected["also_accept"]), said
    if expected["guilty_ranks"] is not None:
        assert list(verdict.guilty_ranks) == expected["guilty_ranks"], said
    if verdict.cause is not Cause.INCONCLUSIVE:
        least, most = (Confidence(expected[key]).order for key in ("min_confidence", "max_confidence"))
        assert least <= verdict.confidence.order <= most, said


@pytest.mark.parametrize("name", NAMES)
def test_nobody_innocent_is_blamed(name: str) -> None:
    verdict = verdict_of(name)
    assert not set(verdict.guilty_ranks) & set(expected_of(name)["never_blame"]), verdict.summary


@pytest.mark.parametrize("name", list(_marked(BLAMES_YET)))
def test_a_missing_file_never_moves_the_blame_to_an_innocent(name: str, tmp_path: Path) -> None:
    """What is left may decide nothing; it may not name a rank that the whole of it clears."""
    innocent, files = set(expected_of(name)["never_blame"]), files_of(name)
    rest = shutil.copytree(CASES / name / "input", tmp_path / "rest")
    for missing in files if len(files) > 1 else ():
        place = rest / missing.relative_to(CASES / name / "input")
        place.rename(tmp_path / "aside")
        verdict = verdict_on(rest)
        (tmp_path / "aside").rename(place)
        if verdict.confidence is not Confidence.POSSIBLE:
            assert not set(verdict.guilty_ranks) & innocent, f"without {missing.name}: {verdict.summary}"
