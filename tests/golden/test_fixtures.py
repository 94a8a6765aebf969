"""Each fixture's verdict is what was written by hand in its `expected.json`."""

import json
from pathlib import Path

import pytest

from ncclprobe import workflow

FIXTURES = Path(__file__).parents[2] / "fixtures"
EXPECTED = sorted(FIXTURES.glob("*/expected.json"))


def test_there_are_fixtures() -> None:
    assert EXPECTED


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: path.parent.name)
def test_the_verdict_is_the_truth(path: Path) -> None:
    expected = json.loads(path.read_text())
    verdict = workflow.analyze(path.parent / "bundle").verdict
    assert verdict.cause == expected["cause"]
    assert list(verdict.guilty_ranks) == expected["guilty_ranks"]
    assert verdict.confidence == expected["confidence"]
    assert verdict.victims == expected["victims"]
    assert (verdict.where[0].file, verdict.where[0].line) == (expected["file"], expected["line"])


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: path.parent.name)
def test_it_says_how_it_was_made(path: Path) -> None:
    assert "make.py" in (path.parent / "README.md").read_text()
