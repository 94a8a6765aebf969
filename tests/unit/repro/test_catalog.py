"""Which reproducers there are, and what every one of them must keep to."""

import subprocess
import sys

import pytest

from ncclprobe.model.errors import UsageError
from ncclprobe.model.report import Cause
from ncclprobe.repro.catalog import all_repros, find
from ncclprobe.repro.reproducer import Launcher, Need, Repro
from ncclprobe.repro.truth import truth_of

every_repro = pytest.mark.parametrize("repro", all_repros(), ids=lambda repro: repro.name)


def test_the_demo_is_found_by_name() -> None:
    repro = find("mismatched-logging")
    assert (repro.cause, repro.guilty_ranks, repro.default_ranks) == (Cause.COLLECTIVE_EXTRA, (0,), 4)


@pytest.mark.parametrize("name", ["mismatched_logging", "mismatch-loging", "nothing like it"])
def test_an_unknown_name_lists_the_near_ones(name: str) -> None:
    with pytest.raises(UsageError, match="no reproducer named") as caught:
        find(name)
    assert "mismatched-logging" in caught.value.advice


def test_names_are_sorted_and_unique() -> None:
    names = [repro.name for repro in all_repros()]
    assert names == sorted(set(names))


@every_repro
def test_its_texts_are_single_lines(repro: Repro) -> None:
    for text in (repro.name, repro.summary, repro.needs, repro.expects):
        assert text.strip()
        assert "\n" not in text


@every_repro
def test_its_program_is_named_like_it_and_marks_the_guilty_line(repro: Repro) -> None:
    assert repro.path.stem == repro.name.replace("-", "_")
    line = truth_of(repro, repro.default_ranks).line
    assert (line is not None) is (repro.has_line and bool(repro.guilty_ranks))


@every_repro
def test_its_program_stands_alone(repro: Repro) -> None:
    source = repro.path.read_text(encoding="utf-8")
    assert "ncclprobe" not in source
    assert all(option in source for option in ('"--at-step"', '"--steps"', '"--backend"', '"--fixed"'))


@every_repro
def test_its_guilty_ranks_are_in_the_smallest_job(repro: Repro) -> None:
    assert repro.default_ranks >= repro.min_ranks > max(repro.guilty_ranks, default=0)


@every_repro
def test_what_is_done_to_it_from_outside_needs_plain_processes(repro: Repro) -> None:
    has_harm = bool(repro.harm.absent_ranks or repro.harm.environment or repro.harm.links_down)
    is_special = has_harm or bool(repro.memory_mib or repro.hosts)
    assert repro.launcher is Launcher.PLAIN or not is_special
    assert not repro.hosts or Need.NAMESPACES in repro.requires
    assert not repro.memory_mib or Need.MEMORY_CGROUP in repro.requires


def test_listing_and_launching_never_import_torch() -> None:
    code = (
        "import sys; from ncclprobe.repro import catalog, launch; catalog.all_repros(); print('torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60) == "False\n"
