"""A private directory that a process and its asker both reach, though they may see different file systems.

In: a pid. Out: a directory in the process's own file system, owned by its user, that libraries may be loaded from; in
the end it is removed with all that is in it. The process may be hostile: no link in its root is followed, and what it
left in the directory is read only when it is a plain file.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ncclprobe.model.errors import NcclprobeError
from ncclprobe.probe import proc

NAME_PREFIX = "ncclprobe-live-"
_PLACES = ("/tmp", "/dev/shm", "/var/tmp")  # noqa: S108  the private directory is made inside one of them


class NoDirectoryError(NcclprobeError):
    """There is no place that both can use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDirectory:
    """`path` is how the process sees it, `descriptor` how we reach it, whatever is renamed meanwhile."""

    path: str
    descriptor: int
    parent: int
    owner: tuple[int, int]

    def write(self, name: str, data: bytes) -> None:
        """Put a file there that the process may read."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(name, flags, 0o600, dir_fd=self.descriptor), "wb") as file:
            file.write(data)
            _give_away(file.fileno(), self.owner)

    def has(self, name: str) -> bool:
        """Whether the process has put that file there."""
        try:
            os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return False
        return True

    def read(self, name: str, limit_bytes: int) -> bytes:
        """The first `limit_bytes` of a file; OSError when it is not there or not a plain file."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(name, flags, dir_fd=self.descriptor), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(f"{name} is not a plain file")
            return file.read(limit_bytes)

    def remove(self) -> None:
        """Remove the directory and the files in it, as far as the process has not moved them."""
        for name in os.listdir(self.descriptor):
            with suppress(OSError):
                os.unlink(name, dir_fd=self.descriptor)
        with suppress(OSError):
            os.rmdir(os.path.basename(self.path), dir_fd=self.parent)
        os.close(self.descriptor)
        os.close(self.parent)


@contextmanager
def private_directory(pid: int) -> Iterator[TargetDirectory]:
    """Make the directory and remove it at the end. PermissionError when the process may not be looked into."""
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        directory = _make_somewhere(root, pid)
    finally:
        os.close(root)
    try:
        yield directory
    finally:
        directory.remove()


def _make_somewhere(root: int, pid: int) -> TargetDirectory:
    owner = _file_owner(pid)
    reasons = []
    for place in _PLACES:
        try:
            return _make(root, place, owner)
        except OSError as error:
            reasons.append(f"{place}: {error.strerror or error}")
    what = f"process {pid} has no directory that it can load a library from ({'; '.join(reasons)})"
    raise NoDirectoryError(what, f"give it one that is writable and not mounted noexec: {', '.join(_PLACES)}")


def _make(root: int, place: str, owner: tuple[int, int]) -> TargetDirectory:
    parent = _open_place(root, place)
    name = NAME_PREFIX + os.urandom(8).hex()
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except OSError:
        os.close(parent)
        raise
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=parent)
    directory = TargetDirectory(path=f"{place}/{name}", descriptor=descriptor, parent=parent, owner=owner)
    try:
        _give_away(descriptor, owner)
    except OSError:
        directory.remove()
        raise
    return directory


def _open_place(root: int, place: str) -> int:
    """Walk there without following links: an absolute link would lead into our own file system."""
    current = os.dup(root)
    try:
        for part in place.strip("/").split("/"):
            step = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = step
        if os.fstatvfs(current).f_flag & os.ST_NOEXEC:
            raise OSError("mounted noexec")
    except OSError:
        os.close(current)
        raise
    return current


def _file_owner(pid: int) -> tuple[int, int]:
    """The user and group that the process's files get."""
    fields = proc.status(pid)
    return int(fields.get("Uid", "0").split()[-1]), int(fields.get("Gid", "0").split()[-1])


def _give_away(descriptor: int, owner: tuple[int, int]) -> None:
    if owner[0] != os.geteuid():
        os.fchown(descriptor, *owner)
