"""Which torch a process has loaded, from its maps and the package beside."""

from pathlib import Path

import pytest

from ncclprobe.probe.torch_library import loaded_torch

LINE = "7f00-7f01 r-xp 0 0:0 1 /opt/my env/site-packages/torch/lib/{}\n"


@pytest.mark.parametrize(
    ("library", "names", "expected"),
    [
        ("libtorch_cpu.so", ["torch-2.13.0+cpu.dist-info", "torchvision-0.1.0.dist-info"], (2, 13, 0)),
        ("libc10.so", ["numpy-2.0.0.dist-info", "torch-2.2.2.dist-info"], (2, 2, 2)),
        ("libtorch.so", ["torch-2.7.0a0+git1234-py3.11.egg-info"], (2, 7, 0)),
        ("libtorch_cpu.so", ["torchaudio-2.0.0.dist-info", "torch"], None),
        ("libother.so", ["torch-2.13.0.dist-info"], None),
    ],
)
def test_by_the_name_of_its_package(tmp_path: Path, library: str, names: list[str], expected: object) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "maps").write_text(LINE.format("libcudart.so") + LINE.format(library))
    asked = []

    def names_in(pid: int, path: str) -> list[str]:
        asked.append((pid, path))
        return names

    assert loaded_torch(7, tmp_path, names_in) == expected
    assert set(asked) <= {(7, "/opt/my env/site-packages")}


def test_none_where_we_may_not_look(tmp_path: Path) -> None:
    def refuse(pid: int, path: str) -> list[str]:
        raise PermissionError

    assert loaded_torch(8, tmp_path) is None
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "maps").write_text(LINE.format("libtorch.so"))
    assert loaded_torch(7, tmp_path, refuse) is None
