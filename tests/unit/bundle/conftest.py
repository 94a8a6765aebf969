import io
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from ncclprobe.bundle import BundleWriter
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.manifest import HostOutcome, Outcome

CONTENT = {
    ("node1", "stacks/rank0.json"): b'[{"thread": 1}]',
    ("node1", "flight-recorder/rank0.pickle"): bytes(range(256)) * 40,
    ("node2", "stacks/rank1.json"): b"",
    ("node2", "kernel-log/dmesg.txt"): b"Out of memory: Killed process 12\n" * 30,
}


@pytest.fixture
def make_bundle(tmp_path: Path) -> Callable[[str], Path]:
    """A bundle of two hosts and four files, as a directory or an archive by its name."""

    def make(name: str) -> Path:
        with BundleWriter.create(tmp_path / name, "0.1.0", "run-7", 3.0) as writer:
            for (host, path), data in CONTENT.items():
                kind = Kind(path.split("/")[0])
                writer.add(Artifact(path=path, kind=kind, host=host, origin=f"/tmp/{path}"), [data[:7], data[7:]])
            for host in ("node1", "node2"):
                writer.add_host(HostOutcome(name=host, address=f"{host}.example", outcome=Outcome.COMPLETE))
        return tmp_path / name

    return make


@pytest.fixture
def pack_tar(tmp_path: Path) -> Callable[..., Path]:
    """An archive of the given members, in order; a name with bytes is a regular file."""

    def pack(
        members: Iterable[tuple[str, bytes] | tarfile.TarInfo], mode: str = "w:gz", name: str = "made.bin"
    ) -> Path:
        path = tmp_path / name
        with tarfile.open(path, mode) as archive:
            for member in members:
                if isinstance(member, tarfile.TarInfo):
                    archive.addfile(member)
                    continue
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
        return path

    return pack
