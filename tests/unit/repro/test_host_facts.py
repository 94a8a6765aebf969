"""What a host says it has is checked before anything is started, and never believed unread."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ncclprobe.collect.hosts import Host
from ncclprobe.collect.transport.local import LocalTransport
from ncclprobe.model.errors import NcclprobeError, UsageError
from ncclprobe.repro.catalog import find
from ncclprobe.repro.host_facts import Facts, look_at, master_address
from ncclprobe.repro.places import Place, Process

REPRO = find("mismatched-logging")
GOOD = {
    "version": [3, 11],
    "has_torch": True,
    "has_gpu": False,
    "address": "10.0.0.7",
    "name": "node7",
    "interface": "eth0",
    "port": 4711,
}


class Said:
    """A host whose Python has said this and ended."""

    def __init__(self, text: str, status: int | None = 0, words: str = "") -> None:
        self._chunks = [text.encode(), b""]
        self._end = status, words
        self.is_closed = False

    def read(self, size: int) -> bytes:
        return self._chunks.pop(0)

    def finish(self) -> tuple[int | None, str]:
        return self._end

    def close(self) -> None:
        self.is_closed = True


def look(process: Process, name: str = "mismatched-logging") -> Facts:
    (facts,) = look_at([Place(name="node7", start=lambda *_: process)], "/opt/python", find(name))
    return facts


def saying(**changes: object) -> Said:
    return Said(f"welcome\nncclprobe-repro-starts\n{json.dumps({**GOOD, **changes})}\n")


def test_what_a_shell_prints_first_is_passed_over() -> None:
    process = saying()
    facts = look(process)
    assert (facts.address, facts.interface, facts.port) == ("10.0.0.7", "eth0", 4711)
    assert process.is_closed


@pytest.mark.parametrize(
    ("process", "what"),
    [
        (Said("", 127, "sh: 1: exec: /opt/python: not found"), "node7: it has no Python /opt/python"),
        (Said("", 1, "ImportError: \x1b[31mlibpython\n"), r"node7: its Python /opt/python does not work: .*\?\[31mlib"),
        (saying(has_torch=False), "node7: its Python /opt/python has no torch"),
        (saying(version=[3, 8]), "node7: its Python /opt/python is 3.8, and 3.10 or newer is needed"),
        (saying(port="../x"), "node7: its Python /opt/python does not work: exit status 0"),
        (saying(address="10.0.0.7; reboot"), "does not work"),
        (Said("ncclprobe-repro-starts\n[]\n"), "does not work"),
        (Said("ncclprobe-repro-starts\n{}\n"), "does not work"),
    ],
)
def test_a_host_that_lacks_something_is_named_in_one_line(process: Said, what: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        look(process)
    assert "--python" in caught.value.advice
    assert process.is_closed


def test_a_gpu_is_asked_for_on_the_hosts_and_not_here() -> None:
    with pytest.raises(UsageError, match="node7: it has no NVIDIA GPU"):
        look(saying(), "spinning-collective")
    assert look(saying(has_gpu=True), "spinning-collective").has_gpu


def test_names_that_a_host_makes_up_go_no_further() -> None:
    facts = look(saying(name="$(reboot)", interface="eth0 x"))
    assert (facts.name, facts.interface) == ("localhost", "")


def test_the_first_host_is_reached_by_the_address_it_was_reached_by() -> None:
    facts = look(saying())
    local = replace(facts, address="127.0.0.1")
    assert master_address([facts, local]) == "10.0.0.7"
    assert master_address([local]) == "127.0.0.1"
    assert master_address([local, facts]) == "node7"
    assert master_address([replace(facts, address=None), facts]) == "node7"


def test_a_host_that_cannot_be_reached_is_named() -> None:
    def refuse(*_: object) -> Process:
        raise NcclprobeError("port 22 refuses the connection", "start sshd")

    with pytest.raises(NcclprobeError, match="node8: port 22 refuses"):
        look_at([Place(name="node8", start=refuse)], "python3", REPRO)


def test_the_real_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SSH_CONNECTION", "127.0.0.1 50000 127.0.0.1 22")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    place = Place(name="here", start=partial(LocalTransport().start, Host(name="here", address="here")))
    (facts,) = look_at([place], "python3", REPRO)
    assert (facts.address, facts.interface, facts.is_loopback) == ("127.0.0.1", "lo", True)
    assert 0 < facts.port < 65536
