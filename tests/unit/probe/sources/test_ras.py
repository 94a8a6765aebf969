"""Asking NCCL's RAS service: when it is asked, how often, and what stands in for an answer."""

import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.probe import ras_client
from ncclprobe.probe.nccl_library import NcclLibrary, Version
from ncclprobe.probe.source import Found, Options
from ncclprobe.probe.sources import ras
from ncclprobe.probe.sources.ras import SOURCE
from tests.ras_reports import as_json, rank, text
from tests.unit.probe.processes import in_child, running
from tests.unit.probe.ras_server import FakeRas, serving
from tests.unit.probe.sources.context import collect, context, process

JSON = as_json([rank(0, {"AllReduce": 5})])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "LEAST_INTERVAL_S", 0.05)
    monkeypatch.setattr(ras_client, "_REPLY_S", 0.3)


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what each rank has loaded: a version, None for an unknown one; nothing at all without arguments."""

    def loaded(*versions: Version | None) -> None:
        left = list(versions)

        def of(pid: int) -> NcclLibrary | None:
            return NcclLibrary(path="/usr/lib/libnccl.so.2", version=left.pop(0)) if left else None

        monkeypatch.setattr(ras, "loaded_nccl", of)

    return loaded


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def of(**variables: str) -> None:
        monkeypatch.setattr(ras.proc, "environ", lambda pid: variables)

    return of


def look(**options: Any) -> tuple[list[Found], list[Gap]]:
    given = Options(interval_s=0.1, **options)
    ranks = [process(os.getpid(), number) for number in range(2)]
    return collect(SOURCE, context(*ranks, options=given))


def test_two_looks_at_a_safe_version(nccl: Callable[..., None], environ: Callable[..., None]) -> None:
    fake = FakeRas(json=JSON)
    with serving(fake) as port:
        nccl((2, 28, 9), (2, 28, 9))
        environ(NCCL_RAS_ADDR=f"localhost:{port}")
        found, gaps = look()
    assert gaps == []
    assert [(item.file, item.kind, item.look, item.truncated) for item in found] == [
        ("ras.look1.json", Kind.RAS, 1, False),
        ("ras.look2.json", Kind.RAS, 2, False),
    ]
    assert found[0].data == JSON.encode()
    assert found[0].origin == f"NCCL RAS at localhost:{port} (127.0.0.1:{port})"
    assert (found[0].end_ns or 0) <= (found[1].start_ns or 0)
    assert len(fake.said) == 2


def test_text_has_another_name(nccl: Callable[..., None], environ: Callable[..., None]) -> None:
    with serving(FakeRas(text=text(), has_json=False)) as port:
        nccl((2, 26, 2), (2, 26, 2))
        environ(NCCL_RAS_ADDR=f"127.0.0.1:{port}")
        found, _ = look(ras=True)
    assert [item.file for item in found] == ["ras.look1.txt", "ras.look2.txt"]


@pytest.mark.parametrize(
    ("versions", "why", "action"),
    [
        ([(2, 28, 9), (2, 26, 2)], "NCCL 2.26.2 can crash when asked", "allow it with --ras"),
        ([(2, 28, 3)], "NCCL 2.28.3 can crash when asked", "allow it with --ras"),
        ([(2, 21, 5)], "NCCL 2.21.5 has no RAS service", "none"),
        ([None], "the version of /usr/lib/libnccl.so.2 is not known", "--ras"),
        ([(2, 28, 9), None], "the version of /usr/lib/libnccl.so.2 is not known", "--ras"),
    ],
)
def test_what_is_not_asked_unless_the_user_says_so(
    nccl: Callable[..., None], environ: Callable[..., None], versions: list[Version | None], why: str, action: str
) -> None:
    fake = FakeRas(json=JSON)
    with serving(fake) as port:
        environ(NCCL_RAS_ADDR=f"127.0.0.1:{port}")
        nccl(*versions)
        found, (gap,) = look()
        assert (found, fake.said) == ([], [])
        assert why in gap.why
        assert action in gap.action
        nccl(*versions)
        found, gaps = look(ras=True)
        assert (len(found), gaps) == (2, [])


def test_a_job_without_nccl_is_no_gap(nccl: Callable[..., None], environ: Callable[..., None]) -> None:
    nccl()
    environ()
    assert look() == ([], [])
    assert collect(SOURCE, context()) == ([], [])
    assert collect(SOURCE, context(options=Options(ras=True))) == ([], [])


def test_a_torch_that_has_nccl_linked_in_is_asked_on_request(
    nccl: Callable[..., None], environ: Callable[..., None]
) -> None:
    with serving(FakeRas(json=JSON)) as port:
        nccl()
        environ(NCCL_RAS_ADDR=f"127.0.0.1:{port}")
        assert len(look(ras=True)[0]) == 2


def test_switched_off(nccl: Callable[..., None], environ: Callable[..., None]) -> None:
    nccl((2, 28, 9), (2, 28, 9))
    environ(NCCL_RAS_ENABLE="0")
    found, (gap,) = look()
    assert found == []
    assert gap.why == "NCCL_RAS_ENABLE is 0 in the ranks"
    assert not SOURCE.is_wanted(Options(ras=False))


def test_nobody_answers(nccl: Callable[..., None], environ: Callable[..., None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    nccl((2, 28, 9), (2, 28, 9))
    environ(NCCL_RAS_ADDR=f"127.0.0.1:{port}")
    found, (gap,) = look()
    assert found == []
    assert gap.what == "no report of NCCL's RAS service"
    assert "Connection refused" in gap.why


def test_a_report_that_breaks_off_is_kept_as_such(nccl: Callable[..., None], environ: Callable[..., None]) -> None:
    with serving(FakeRas(json=JSON, resets=1, pause_s=0.05)) as port:
        nccl((2, 28, 9), (2, 28, 9))
        environ(NCCL_RAS_ADDR=f"127.0.0.1:{port}")
        found, gaps = look()
    assert [item.truncated for item in found] == [True, False]
    assert gaps == []


SERVER = """
import os, sys, time
sys.path.insert(0, os.environ["REPOSITORY"])
from tests.unit.probe.ras_server import FakeRas, serving
with serving(FakeRas(json=os.environ["REPORT"])) as port:
    open(os.environ["PORT_FILE"], "w").write(str(port))
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and ip(8)")
def test_ranks_with_a_network_of_their_own(
    tmp_path: Path, nccl: Callable[..., None], environ: Callable[..., None]
) -> None:
    port_file = tmp_path / "port"
    setup = 'ip link set lo up && exec "$0" "$@"'
    command = ("unshare", "--net", "sh", "-c", setup, sys.executable, "-c")
    given = {"REPOSITORY": str(Path(__file__).parents[4]), "REPORT": JSON, "PORT_FILE": str(port_file)}
    nccl((2, 28, 9))
    with running(SERVER, command=command, environ=given) as pid:
        environ(NCCL_RAS_ADDR=f"127.0.0.1:{port_file.read_text()}")

        def work() -> list[str]:
            found, gaps = collect(SOURCE, context(process(pid), options=Options(interval_s=0.1)))
            return [item.file for item in found] + [gap.why for gap in gaps]

        assert in_child(work) == ["ras.look1.json", "ras.look2.json"]
