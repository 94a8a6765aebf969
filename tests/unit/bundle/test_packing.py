import tarfile
from pathlib import Path

import pytest

from ncclprobe.bundle.packing import is_archive_name, pack


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.tar.gz", True), ("a.tgz", True), ("a.tar", True), ("a", False), ("a.tar.d", False), ("a.gz", False)],
)
def test_archives_are_told_by_their_name(name: str, expected: bool) -> None:
    assert is_archive_name(Path("x") / name) is expected


@pytest.mark.parametrize(("name", "mode"), [("a.tgz", "r:gz"), ("a.tar.gz", "r:gz"), ("a.tar", "r:")])
def test_an_archive_is_private_anonymous_and_in_order(tmp_path: Path, name: str, mode: str) -> None:
    (tmp_path / "b").write_bytes(b"1")
    (tmp_path / "a").write_bytes(b"22")
    pack(tmp_path, ["b", "a"], tmp_path / name)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    with tarfile.open(tmp_path / name, mode) as archive:
        assert [(m.name, m.size, m.uid, m.uname, m.mode) for m in archive] == [
            ("b", 1, 0, "", 0o600),
            ("a", 2, 0, "", 0o600),
        ]


def test_a_failed_archive_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with pytest.raises(FileNotFoundError):
        pack(tmp_path / "source", ["missing"], tmp_path / "out.tgz")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
