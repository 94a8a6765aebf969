"""A bundle directory as one archive.

In: a finished bundle directory and the files to take. Out: an archive that gets its name only when it is whole.
"""

import os
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

# Dumps and stacks shrink about as much at level 3 as at 9, and a stuck job waits for this.
_COMPRESSION_LEVEL = 3


def is_archive_name(path: Path) -> bool:
    """Whether a bundle at `path` is to be an archive."""
    return path.name.endswith((".tar.gz", ".tgz", ".tar"))


def pack(source: Path, names: Iterable[str], target: Path) -> None:
    """Write `names` (relative to `source`, in this order) to the private archive `target`; OSError when that fails."""
    descriptor, unfinished = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".new", dir=target.parent)
    try:
        with open(descriptor, "wb") as file:
            _write(file, source, names, is_zipped=target.suffix != ".tar")
        os.replace(unfinished, target)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def _write(file: BinaryIO, source: Path, names: Iterable[str], *, is_zipped: bool) -> None:
    with _archive(file, is_zipped=is_zipped) as archive:
        for name in names:
            with (source / name).open("rb") as member:
                archive.addfile(_anonymous(archive.gettarinfo(arcname=name, fileobj=member)), member)


def _archive(file: BinaryIO, *, is_zipped: bool) -> tarfile.TarFile:
    if is_zipped:
        return tarfile.open(fileobj=file, mode="w:gz", compresslevel=_COMPRESSION_LEVEL)
    return tarfile.open(fileobj=file, mode="w")


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    member.mtime = int(member.mtime)
    return member
