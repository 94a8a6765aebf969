"""Adding a source, a detector, a renderer or a reproducer is adding one file that defines one typed constant."""

import pkgutil

import pytest

from ncclprobe import report, repro
from ncclprobe.analyze import detectors
from ncclprobe.analyze.detector import Detector, find_detectors
from ncclprobe.probe import sources
from ncclprobe.probe.plugins import find_sources
from ncclprobe.probe.source import Disturbance, Options, Source
from ncclprobe.report.renderer import find_renderers
from ncclprobe.repro.catalog import all_repros


def test_every_module_of_the_folder_is_a_source() -> None:
    found = find_sources()
    assert all(isinstance(source, Source) for source in found)
    assert {source.name for source in found} == {module.name for module in pkgutil.iter_modules(sources.__path__)}


def test_every_module_of_the_folder_is_a_detector() -> None:
    found = find_detectors()
    assert all(isinstance(detector, Detector) and detector.causes for detector in found)
    assert len(found) == len(list(pkgutil.iter_modules(detectors.__path__)))


def test_the_formats_are_the_modules() -> None:
    modules = {module.name for module in pkgutil.iter_modules(report.__path__)} - {"renderer", "wait_lines"}
    assert set(find_renderers()) == modules == {"console", "json"}


def test_there_is_at_least_one_reproducer_and_each_has_its_program() -> None:
    assert all_repros()
    assert all(found.path.is_file() for found in all_repros())
    assert repro.__doc__


@pytest.mark.parametrize("source", find_sources(), ids=lambda source: source.name)
def test_a_default_run_never_disturbs_the_process_itself(source: Source) -> None:
    if source.disturbs is Disturbance.INJECTION:
        assert not source.is_wanted(Options())
        assert source.is_wanted(Options(live_dump=True))
    else:
        assert source.is_wanted(Options())
