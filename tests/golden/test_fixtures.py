"""Each fixture's verdict is what was written by hand in its `expected.json`, and each can be made anew."""

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fixtures import make
from fixtures.packing import pack
from ncclprobe import workflow
from ncclprobe.model.folding import fold, name_ranks
from ncclprobe.model.report import Cause, Confidence, Report
from ncclprobe.repro.catalog import all_repros
from ncclprobe.repro.reproducer import Need
from ncclprobe.repro.truth import truth_of

FIXTURES = Path(make.__file__).parent
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/expected.json"))
NOT_YET: dict[str, str] = {}
BLAMES_YET: dict[str, str] = {}


def _marked(not_yet: dict[str, str]) -> list[Any]:
    """All fixtures; those whose truth the analyzer does not find yet fail, and must leave the list once it does."""
    marks = {name: [pytest.mark.xfail(strict=True, reason=reason)] for name, reason in not_yet.items()}
    return [pytest.param(name, id=name, marks=marks.get(name, [])) for name in NAMES]


@cache
def report_of(name: str) -> Report:
    """As a reader gives it: the folder."""
    return workflow.analyze(FIXTURES / name)


def expected_of(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FIXTURES / name / "expected.json").read_text())
    return loaded


def unfolded(text: str) -> set[int]:
    """`1-3,7` as numbers."""
    pairs = (item.partition("-") for item in text.split(",") if item)
    return {rank for first, _, last in pairs for rank in range(int(first), int(last or first) + 1)}


@pytest.mark.parametrize("name", _marked(NOT_YET))
def test_the_verdict_is_the_truth(name: str) -> None:
    """An accepted other cause may name fewer ranks, where less can be told: innocents are tested apart."""
    expected, verdict = expected_of(name), report_of(name).verdict
    said = f"{verdict.cause} by {name_ranks(verdict.guilty_ranks)}, {verdict.confidence}: {verdict.summary}"
    assert verdict.cause.value in (expected["cause"], *expected["also_accept"]), said
    if verdict.cause.value == expected["cause"]:
        assert list(verdict.guilty_ranks) == expected["guilty_ranks"], said
    bounds = [Confidence(expected[key]).order for key in ("min_confidence", "max_confidence")]
    assert bounds[0] <= verdict.confidence.order <= bounds[1], said


@pytest.mark.parametrize("name", _marked(BLAMES_YET))
def test_nobody_innocent_is_blamed(name: str) -> None:
    """Neither by the verdict nor, as more than possible, by another finding."""
    innocent, report = unfolded(expected_of(name)["never_blame"]), report_of(name)
    blamed = {*report.verdict.guilty_ranks}
    for finding in report.findings:
        if finding.confidence is not Confidence.POSSIBLE:
            blamed.update(finding.guilty_ranks)
    assert not blamed & innocent, fold(tuple(sorted(blamed & innocent)))


@pytest.mark.parametrize("name", [name for name in NAMES if "suspects" in expected_of(name)])
def test_suspects_are_named(name: str) -> None:
    assert name_ranks(expected_of(name)["suspects"]) in report_of(name).verdict.summary.lower()


@pytest.mark.parametrize("name", [name for name in NAMES if "victims" in expected_of(name)])
def test_the_victims_are_right(name: str) -> None:
    assert report_of(name).verdict.victims == expected_of(name)["victims"]


@pytest.mark.parametrize("name", [name for name in NAMES if "line" in expected_of(name)])
def test_the_planted_line_is_shown(name: str) -> None:
    """Of several lines (where each rank waits, the worker of a loader) any may be the first."""
    expected, verdict = expected_of(name), report_of(name).verdict
    assert (expected["file"], expected["line"]) in {(where.file, where.line) for where in verdict.where}


@pytest.mark.parametrize("name", make.MADE_UP)
def test_it_is_made_anew_byte_for_byte(name: str, tmp_path: Path) -> None:
    """Its files are the stored ones; those packed twice are the same archive (compressed alike by one zlib)."""
    again = tmp_path / make.ARCHIVE
    pack(make.files(name), again)
    assert _members(again) == _members(FIXTURES / name / make.ARCHIVE)
    packed = again.read_bytes()
    pack(make.files(name), again)
    assert again.read_bytes() == packed


def _members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        files = ((member.name, archive.extractfile(member)) for member in archive)
        return {name: file.read() for name, file in files if file is not None}


def test_each_is_made_listed_and_says_why() -> None:
    assert sorted((*make.MADE_UP, *make.RECORDED)) == NAMES
    listed = (FIXTURES / "README.md").read_text()
    for name in NAMES:
        assert f"`{name}`" in listed, name
        assert expected_of(name)["because"].endswith("."), name


def test_every_reproducer_that_runs_without_a_gpu_is_recorded_and_its_truth_is_the_planted_one() -> None:
    without_gpu = {repro.name: repro for repro in all_repros() if Need.GPU not in repro.requires}
    assert set(NAMES) - set(make.MADE_UP) == set(without_gpu)
    assert not {repro.name for repro in all_repros()} & set(make.MADE_UP)
    for name, repro in without_gpu.items():
        expected, truth = expected_of(name), truth_of(repro, repro.default_ranks)
        assert (expected["cause"], tuple(expected["guilty_ranks"])) == (truth.cause.value, truth.guilty_ranks), name
        assert (Path(expected.get("file", truth.file)).name, expected.get("line")) == (truth.file, truth.line), name


def test_every_cause_that_dumps_can_show_is_there() -> None:
    shown = {expected_of(name)["cause"] for name in NAMES}
    collectives = {cause.value for cause in Cause if cause.value.startswith("collective-")}
    assert shown >= collectives | {"group-order-deadlock", "p2p-mismatch", "stuck-in-python", "stuck-in-cuda"}
    assert shown >= {"progressing", "inconclusive"}
