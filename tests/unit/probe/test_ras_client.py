"""The client of NCCL's RAS service, against a server that speaks the protocol as each version does."""

import socket
import time

import pytest

from ncclprobe.parse.ras import parse
from ncclprobe.probe import ras_client
from ncclprobe.probe.ras_client import Address, Answer, RasError, address_of, ask
from tests.ras_reports import as_json, missing, rank, text
from tests.unit.probe.ras_server import FakeRas, serving

JSON = as_json([rank(0, {"AllReduce": 5})], [missing(1)], "2.28.9")
SECONDS = 0.2


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras_client, "_REPLY_S", SECONDS)


def asked(fake: FakeRas, attempts: int = 4, deadline_s: float = 5.0, host: str = "127.0.0.1", name: str = "") -> Answer:
    with serving(fake, host) as port:
        return ask(Address(host=name or host, port=port), deadline=time.monotonic() + deadline_s, attempts=attempts)


def test_json_where_the_service_can() -> None:
    fake = FakeRas(json=JSON, text=text(version="2.28.9"))
    answer = asked(fake)
    assert (answer.data, answer.is_json, answer.is_whole, answer.silent) == (JSON.encode(), True, True, 0)
    assert fake.said == [["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "VERBOSE STATUS"]]
    assert len(parse(answer.data).records[0].communicators[0].ranks) == 2


@pytest.mark.parametrize("version", ["2.24.3", "2.26.2", "2.28.3"])
def test_text_from_those_that_know_no_format(version: str) -> None:
    fake = FakeRas(text=text(version=version), has_json=False)
    answer = asked(fake)
    assert (answer.data, answer.is_json, answer.is_whole) == (text(version=version).encode(), False, True)
    assert fake.said[0][-1] == "VERBOSE STATUS"


def test_a_report_that_comes_slowly_and_in_pieces() -> None:
    answer = asked(FakeRas(json=JSON, pause_s=SECONDS * 1.5))
    assert answer.data == JSON.encode()
    assert answer.is_whole


def test_ranks_that_are_stopped_accept_and_say_nothing() -> None:
    fake = FakeRas(json=JSON, silent=2)
    answer = asked(fake)
    assert (answer.silent, answer.is_whole) == (2, True)
    assert len(set(fake.ports)) == 3


def test_all_ranks_are_stopped() -> None:
    started = time.monotonic()
    with pytest.raises(RasError, match=r"3 connections to 127.0.0.1:\d+ were accepted and not answered") as error:
        asked(FakeRas(silent=99), attempts=3)
    assert time.monotonic() - started < 3
    assert "stopped" in error.value.advice


def test_the_deadline_ends_it() -> None:
    started = time.monotonic()
    with pytest.raises(RasError, match="not answered"):
        asked(FakeRas(silent=99), attempts=1_000, deadline_s=0.5)
    assert time.monotonic() - started < 2


def test_a_report_that_does_not_end_before_the_deadline() -> None:
    answer = asked(FakeRas(json=JSON, pause_s=0.7), deadline_s=1.0)
    assert not answer.is_whole
    assert JSON.encode().startswith(answer.data)
    assert answer.data


def test_a_connection_reset_in_the_middle_keeps_what_came() -> None:
    answer = asked(FakeRas(json=JSON, resets=1, pause_s=0.05))
    assert not answer.is_whole
    assert 0 < len(answer.data) < len(JSON)
    assert JSON.encode().startswith(answer.data)


def test_a_report_that_is_too_large_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras_client, "LIMIT_BYTES", 100)
    answer = asked(FakeRas(json=JSON))
    assert (answer.data, answer.is_whole) == (JSON.encode()[:100], False)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(RasError, match="Connection refused") as error:
        ask(Address(port=port), deadline=time.monotonic() + 5, attempts=3)
    assert "NCCL_RAS_ENABLE" in error.value.advice


def test_something_else_listens() -> None:
    with pytest.raises(RasError, match="is not NCCL's RAS service"):
        asked(FakeRas(greeting="SSH-2.0-OpenSSH_9.6"))


def test_something_that_never_ends_its_line() -> None:
    with pytest.raises(RasError, match="not answered"):
        asked(FakeRas(greeting="x" * 100_000), attempts=2)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_localhost_is_either_family(host: str) -> None:
    if host == "::1" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    answer = asked(FakeRas(json=JSON), host=host, name="localhost")
    assert answer.is_whole
    assert host in answer.peer


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("", Address()),
        ("node1:5000", Address(host="node1", port=5_000)),
        ("[::1]:28029", Address(host="::1", port=28_029)),
        ("0.0.0.0:7", Address(host="127.0.0.1", port=7)),
        ("[::]:7", Address(host="::1", port=7)),
        ("node1", Address()),
        ("node1:99999", Address()),
        ("node1:x", Address()),
    ],
)
def test_the_address_of_the_environment(value: str, address: Address) -> None:
    assert address_of({"NCCL_RAS_ADDR": value}) == address
    assert str(Address(host="::1")) == "[::1]:28028"


def test_an_address_that_does_not_exist() -> None:
    with pytest.raises(RasError, match="cannot be resolved"):
        ask(Address(host="no such host"), deadline=time.monotonic() + 5, attempts=1)
