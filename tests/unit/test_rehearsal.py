"""All reproducers, one after the other: what fails is a wrong result, and the next one is tried."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict

import pytest

from ncclprobe import rehearsal
from ncclprobe.cli import repro as command
from ncclprobe.model.errors import NcclprobeError, UsageError
from ncclprobe.rehearsal import Asked, Result, Way, rehearse
from ncclprobe.repro import needs
from ncclprobe.repro.catalog import find
from ncclprobe.repro.reproducer import Repro

TWO = (find("mismatched-logging"), find("crashed"))


def run(*ways: Way) -> list[Result]:
    seen: list[Result] = []
    results = list(rehearse(TWO, ways, Asked(at_step=5), seen.append))
    assert results == seen
    return results


def right(repro: Repro, way: Way) -> Result:
    return Result(name=repro.name, way=way, planted=repro.cause, cause=repro.cause, guilty_ranks=(1,), is_right=True)


def test_a_job_that_fails_is_wrong_for_the_ways_that_were_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_way_only(repro: Repro, ways: tuple[Way, ...], _: Asked) -> Iterator[Result]:
        yield right(repro, ways[0])
        if repro is TWO[0]:
            raise NcclprobeError("the job did not hang", "run it again")
        yield right(repro, ways[1])

    monkeypatch.setattr(rehearsal, "_run", first_way_only)
    results = run(Way.LIVE, Way.STACKS)
    assert [(result.name, result.way, result.is_right) for result in results] == [
        ("mismatched-logging", Way.LIVE, True),
        ("mismatched-logging", Way.STACKS, False),
        ("crashed", Way.LIVE, True),
        ("crashed", Way.STACKS, True),
    ]
    assert results[1].reason == "the job did not hang"


def test_what_the_machine_cannot_do_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "missing", lambda repro: (f"{repro.name} needs root", "sudo"))
    results = run(Way.LIVE)
    assert [(result.is_right, result.reason) for result in results] == [
        (None, "mismatched-logging needs root"),
        (None, "crashed needs root"),
    ]


@pytest.mark.parametrize(("is_right", "status"), [(True, 0), (None, 0), (False, 1)])
def test_the_exit_status_is_zero_only_if_nothing_is_wrong(
    is_right: bool | None, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Result(name="x", way=Way.LIVE, planted="rank-crashed", is_right=is_right, reason="why")
    monkeypatch.setattr(rehearsal, "rehearse", lambda *_: iter([result]))
    assert command._all_diagnosed(TWO, Asked(at_step=5), (Way.LIVE,), None, "json") == status
    assert json.loads(capsys.readouterr().out) == [{**asdict(result), "guilty_ranks": []}]
    assert command._all_diagnosed(TWO, Asked(at_step=5), (Way.LIVE,), None, "console") == status
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "way", "verdict", "ranks", "confidence", "seconds"]
    assert row.split()[:6] == ["x", "live", "-", "-", "-", "-"]


def test_the_ways() -> None:
    assert command._ways(None, True) == (Way.LIVE,)
    assert command._ways(None, False) == (Way.STACKS,)
    assert command._ways("bundle,live", True) == (Way.LIVE, Way.BUNDLE)
    assert command._ways("all", True) == tuple(Way)
    with pytest.raises(UsageError, match="no way 'dumps'"):
        command._ways("live,dumps", True)


def test_the_limit_of_ranks_is_one_for_each_host() -> None:
    two = command._site("node[1-2]", None, False, None)
    command._refuse_crowd(128, two)
    with pytest.raises(UsageError, match="129 ranks are more than 64 a host"):
        command._refuse_crowd(129, two)
    with pytest.raises(UsageError, match="65 ranks are more"):
        command._refuse_crowd(65, command._HERE)


def test_hosts_have_the_python_of_this_machine_unless_another_is_named() -> None:
    assert command._site("node1", None, False, None).python == sys.executable
    site = command._site("node1", None, False, "/opt/python")
    assert (site.python, site.options) == ("/opt/python", ("--hosts", "node1"))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"name": None}, "no reproducer is named"),
        ({"every": True, "diagnose": True}, "contradict each other"),
        ({"diagnose": True, "fixed": True}, "contradict each other"),
        ({"name": None, "every": True}, "--all starts no job that stays"),
        ({"ways": "all", "diagnose": True}, "--ways is for --all --diagnose"),
        ({"backend": "mpi"}, "no backend 'mpi'"),
        ({"name": None, "every": True, "fixed": True, "hosts": "node[1-2]"}, "--all runs on this machine"),
        ({"python": "/opt/python"}, "--python is for --hosts"),
    ],
)
def test_options_that_do_not_fit_together(given: dict[str, object], what: str) -> None:
    usual = {"name": "crashed", "every": False, "diagnose": False, "fixed": False, "backend": "auto", "ways": None}
    with pytest.raises(UsageError, match=what):
        command._check(**{**usual, **given})  # type: ignore[arg-type]
