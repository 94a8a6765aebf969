"""Many hosts at once: one that fails, hangs or lies costs its own answer only, and never more time than agreed."""

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ncclprobe.bundle.reader import open_bundle
from ncclprobe.bundle.writer import BundleWriter
from ncclprobe.collect import gather as gather_module
from ncclprobe.collect.answer import Answer
from ncclprobe.collect.gather import Request, gather
from ncclprobe.model.manifest import Outcome
from ncclprobe.probe.selection import Selection
from ncclprobe.probe.source import Options
from ncclprobe.probe.stream import START_MARK
from tests.unit.collect.fake_transport import (
    Answering,
    FakeProcess,
    FakeTransport,
    good_answer,
    hosts,
    refuse,
)


@pytest.fixture(autouse=True)
def small_kit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather_module.kit, "build", lambda compressed: b"KIT")


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., tuple[list[Answer], dict[str, Outcome], float]]:
    """Gathers; the answers, the outcomes in the bundle, and how long it took."""

    def run(
        transport: FakeTransport, *names: str, deadline_s: float = 20, **fields: Any
    ) -> tuple[list[Answer], dict[str, Outcome], float]:
        begin = time.monotonic()
        with BundleWriter.create(tmp_path / "bundle", "1", None, None) as writer:
            answers = gather(hosts(*names), transport, Request(deadline_s=deadline_s, **fields), writer)
            took_s = time.monotonic() - begin
        with open_bundle(tmp_path / "bundle") as bundle:
            return answers, {host.name: host.outcome for host in bundle.manifest.hosts}, took_s

    return run


Ask = Callable[..., tuple[list[Answer], dict[str, Outcome], float]]


def hang_in_read(transport: FakeTransport, host: Any, deadline: float) -> FakeProcess:
    """As a transport that forgets its deadline."""
    process = FakeProcess(iter(()), deadline)

    def pieces() -> Iterator[bytes]:
        yield Answering().hello().item(b"x").cut()
        process.is_closed.wait(600)

    process.pieces = pieces()
    return process


def hang_in_start(transport: FakeTransport, host: Any, deadline: float) -> FakeProcess:
    time.sleep(600)
    raise AssertionError


def fail_strangely(transport: FakeTransport, host: Any, deadline: float) -> FakeProcess:
    raise ZeroDivisionError("division by zero")


def test_answers_in_the_order_of_the_hosts(ask: Ask) -> None:
    def slow(transport: FakeTransport, host: Any, deadline: float) -> FakeProcess:
        time.sleep(0.3)
        return FakeProcess(iter([good_answer()]), deadline)

    answers, outcomes, _ = ask(FakeTransport({"a": slow, "b": [good_answer()], "c": refuse}), "a", "b", "c")
    assert [answer.host for answer in answers] == ["a", "b", "c"]
    assert outcomes == {"a": Outcome.COMPLETE, "b": Outcome.COMPLETE, "c": Outcome.FAILED}


def test_each_host_is_told_what_is_wanted(ask: Ask) -> None:
    transport = FakeTransport({"a": [good_answer()]})
    options, selection = Options(interval_s=7, live_dump=True), Selection(job="run1")
    ask(transport, "a", options=options, selection=selection, deadline_s=30)
    request = transport.requests["a"]
    assert request["host"] == "a"
    assert request["options"]["interval_s"] == 7
    assert request["options"]["live_dump"] is True
    assert request["selection"]["job"] == "run1"
    assert 20 < request["deadline_s"] < 28, "a part of the time is for the answer"


def test_hosts_are_asked_at_once(ask: Ask) -> None:
    barrier = threading.Barrier(8, timeout=10)

    def meet(transport: FakeTransport, host: Any, deadline: float) -> FakeProcess:
        barrier.wait()
        return FakeProcess(iter([good_answer()]), deadline)

    names = [f"n{number}" for number in range(8)]
    _, outcomes, _ = ask(FakeTransport(dict.fromkeys(names, meet)), *names)
    assert set(outcomes.values()) == {Outcome.COMPLETE}


def test_more_hosts_than_threads(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather_module, "MAX_AT_ONCE", 3)
    names = [f"n{number}" for number in range(20)]
    answers, outcomes, _ = ask(FakeTransport({name: [good_answer()] for name in names}), *names)
    assert [answer.host for answer in answers] == names
    assert set(outcomes.values()) == {Outcome.COMPLETE}


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (refuse, "bad refuses"),
        (fail_strangely, "ZeroDivisionError: division by zero"),
        ([b"\x7fELF garbage"], "did not start"),
        ([START_MARK, b"x" * 10_000], "broke off"),
        ([], "no output"),
    ],
)
def test_one_bad_host_is_its_own_gap(ask: Ask, bad: Any, why: str) -> None:
    answers, outcomes, _ = ask(FakeTransport({"bad": bad, "good": [good_answer()]}), "bad", "good")
    (gap,) = answers[0].gaps
    assert gap.who == "bad"
    assert why in gap.why
    assert outcomes == {"bad": Outcome.FAILED, "good": Outcome.COMPLETE}


@pytest.mark.parametrize(("hang", "outcome"), [(hang_in_read, Outcome.PARTIAL), (hang_in_start, Outcome.FAILED)])
def test_the_deadline_holds_even_when_a_transport_does_not(ask: Ask, hang: Any, outcome: Outcome) -> None:
    transport = FakeTransport({"bad": hang, "good": [good_answer()]})
    answers, outcomes, took_s = ask(transport, "bad", "good", deadline_s=1.5)
    assert took_s < 2.5
    assert outcomes == {"bad": outcome, "good": Outcome.COMPLETE}
    (gap,) = answers[0].gaps
    assert gap.why == "the deadline passed"


def test_a_flood_ends_with_the_deadline_or_with_what_a_host_may_send(ask: Ask) -> None:
    def flood(transport: FakeTransport, host: Any, deadline: float) -> FakeProcess:
        piece = Answering().hello().item(b"x" * 10_000).cut()[len(START_MARK) :]
        return FakeProcess(itertools.chain([START_MARK], itertools.repeat(piece)), deadline)

    _, outcomes, took_s = ask(FakeTransport({"bad": flood, "good": [good_answer()]}), "bad", "good", deadline_s=2)
    assert took_s < 4
    assert outcomes["good"] is Outcome.COMPLETE
    assert outcomes["bad"] is Outcome.PARTIAL


def test_a_host_that_comes_back_late_changes_nothing(ask: Ask) -> None:
    late = threading.Event()

    def come_late(transport: FakeTransport, host: Any, deadline: float) -> FakeProcess:
        late.wait(10)
        return FakeProcess(iter([good_answer()]), deadline)

    transport = FakeTransport({"a": come_late})
    answers, outcomes, _ = ask(transport, "a", deadline_s=1)
    before = list(answers[0].gaps)
    late.set()
    deadline = time.monotonic() + 5
    while "a" not in transport.processes or not transport.processes["a"].is_closed.is_set():
        assert time.monotonic() < deadline, "what was started late is let go"
        time.sleep(0.01)
    assert answers[0].gaps == before
    assert not answers[0].is_whole
    assert outcomes == {"a": Outcome.FAILED}


def test_every_process_is_let_go(ask: Ask) -> None:
    transport = FakeTransport({"a": [good_answer()], "b": [b"garbage"], "c": hang_in_read})
    ask(transport, "a", "b", "c", deadline_s=1)
    assert all(process.is_closed.wait(2) for process in transport.processes.values())


def test_progress_is_told_as_hosts_answer(tmp_path: Path) -> None:
    told: list[str] = []
    with BundleWriter.create(tmp_path / "b", "1", None, None) as writer:
        transport = FakeTransport({"a": [good_answer()], "b": refuse})
        gather(hosts("a", "b"), transport, Request(), writer, lambda answer: told.append(answer.host))
    assert sorted(told) == ["a", "b"]


def test_an_interrupt_leaves_a_bundle_and_tells_the_probes(tmp_path: Path) -> None:
    transport = FakeTransport({"good": [good_answer()], "slow": hang_in_read})
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    with (
        pytest.raises(KeyboardInterrupt),
        BundleWriter.create(tmp_path / "bundle", "1", None, None) as writer,
    ):
        gather(hosts("good", "slow"), transport, Request(deadline_s=60), writer)
    assert time.monotonic() - begin < 5
    assert transport.processes["slow"].is_closed.is_set()
    with open_bundle(tmp_path / "bundle") as bundle:
        outcomes = {host.name: host for host in bundle.manifest.hosts}
        assert len(bundle.manifest.items) == 2
    assert outcomes["good"].outcome is Outcome.COMPLETE
    assert [gap.why for gap in outcomes["slow"].gaps] == ["the collection was interrupted"]


def test_no_hosts(ask: Ask) -> None:
    assert ask(FakeTransport({}))[0] == []
