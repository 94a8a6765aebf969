"""The version of the NCCL that a process has loaded."""

from pathlib import Path

import pytest

from ncclprobe.probe.nccl_library import NcclLibrary, loaded_nccl
from tests.unit.probe.fake_proc import FakeProc

SITE = "/opt/my env/lib/python3.11/site-packages"
WHEEL = f"{SITE}/nvidia/nccl/lib/libnccl.so.2"


def loaded(tmp_path: Path, *paths: str, names: tuple[str, ...] = ()) -> NcclLibrary | None:
    proc = FakeProc(tmp_path)
    proc.add(70)
    lines = (f"7f00-7f01 r-xp 00000000 08:01 {n}    {path}\n" for n, path in enumerate(paths))
    (tmp_path / "70" / "maps").write_text("".join(lines))

    def names_in(pid: int, folder: str) -> list[str]:
        assert (pid, folder) == (70, SITE)
        return list(names)

    return loaded_nccl(70, tmp_path, names_in)


@pytest.mark.parametrize("path", ["/usr/lib/x86_64-linux-gnu/libnccl.so.2.28.9", "/opt/conda/lib/libnccl.so.2.28.9"])
def test_a_file_that_says_it(tmp_path: Path, path: str) -> None:
    assert loaded(tmp_path, "/usr/lib/libc.so.6", path) == NcclLibrary(path=path, version=(2, 28, 9))


@pytest.mark.parametrize(
    ("names", "version"),
    [
        (("torch-2.9.0.dist-info", "nvidia_nccl_cu12-2.27.5.dist-info"), (2, 27, 5)),
        (("nvidia_nccl_cu13-2.28.9.post1.dist-info",), (2, 28, 9)),
        (("nvidia_nccl_cu12-2.28.9.dist-info", "nvidia_nccl_cu13-2.27.7.dist-info"), (2, 27, 7)),
        (("nvidia_cudnn_cu12-9.1.0.70.dist-info",), None),
    ],
)
def test_a_wheel_says_it_beside(tmp_path: Path, names: tuple[str, ...], version: tuple[int, int, int] | None) -> None:
    assert loaded(tmp_path, WHEEL, names=names) == NcclLibrary(path=WHEEL, version=version)


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    def names_in(pid: int, folder: str) -> list[str]:
        raise PermissionError(13, "Permission denied")

    FakeProc(tmp_path).add(70)
    (tmp_path / "70" / "maps").write_text(f"7f00-7f01 r-xp 0 08:01 1 {WHEEL}\n")
    assert loaded_nccl(70, tmp_path, names_in) == NcclLibrary(path=WHEEL, version=None)


def test_somebodys_own_build(tmp_path: Path) -> None:
    assert loaded(tmp_path, "/home/ann/nccl/build/lib/libnccl.so.2") == NcclLibrary(
        path="/home/ann/nccl/build/lib/libnccl.so.2", version=None
    )


@pytest.mark.parametrize("path", ["/usr/lib/libnccl-net.so", "/opt/lib/libnccl-tuner.so.2.28.9", "/usr/lib/libc.so.6"])
def test_plugins_are_not_nccl(tmp_path: Path, path: str) -> None:
    assert loaded(tmp_path, path) is None


def test_a_process_that_is_gone(tmp_path: Path) -> None:
    assert loaded_nccl(71, tmp_path) is None
