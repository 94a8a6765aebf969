"""A bundle in a directory.

In: an open directory, untrusted. Out: its acceptable files, read where they are, and what was left out.

Every step down goes through the directory opened before it and refuses links, so no path leads out, even if one is
swapped for a link meanwhile; nothing but a regular file is ever read.
"""

import os
import stat
from collections.abc import Iterator

from ncclprobe.bundle.paths import MANIFEST_NAME, path_problem, shown
from ncclprobe.bundle.problems import NOT_OURS, Problems
from ncclprobe.bundle.store import CHUNK_BYTES, Limits, StoredFile, too_large, too_many

UNFINISHED_MANIFEST_NAME = "manifest.json.new"

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A fifo put in the place of a file must not block: with O_NONBLOCK it opens at once, and is then seen for what it is.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folder:
    """The store of a directory (see `store.Store`). The descriptor `root` stays the caller's to close."""

    def __init__(self, root: int, limits: Limits, problems: Problems) -> None:
        self.files: dict[str, StoredFile] = {}
        self._root: int | None = root
        self._limits = limits
        self._problems = problems
        self._seen = 0
        self._visit(root, "")
        if sum(file.size_bytes for file in self.files.values()) > limits.total_bytes:
            raise too_large(limits)

    def chunks(self, path: str) -> Iterator[bytes]:
        """The bytes of one of `files`; OSError when it is no longer the regular file that it was, or cannot be read."""
        if self._root is None:
            raise ValueError("the bundle is closed")
        with open(_open_file(self._root, path), "rb", buffering=0) as file:
            # The size at the start bounds the time, should somebody append all the while.
            left_bytes = os.fstat(file.fileno()).st_size
            while left_bytes > 0 and (chunk := file.read(min(left_bytes, CHUNK_BYTES))):
                left_bytes -= len(chunk)
                yield chunk

    def close(self) -> None:
        """Read nothing more."""
        self._root = None

    def _visit(self, directory: int, prefix: str) -> None:
        for name in sorted(os.listdir(directory)):
            self._seen += 1
            if self._seen > self._limits.members:
                raise too_many(self._limits)
            try:
                self._look_at(directory, name, prefix + name)
            except OSError as error:
                self._skip(prefix + name, f"it cannot be read: {error.strerror}")

    def _look_at(self, directory: int, name: str, path: str) -> None:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            self._enter(directory, name, path)
        elif not stat.S_ISREG(status.st_mode):
            self._skip(path, "it is no regular file")
        elif path == MANIFEST_NAME or path_problem(path) is None:
            self.files[path] = StoredFile(size_bytes=status.st_size, modified_s=int(status.st_mtime))
        elif path != UNFINISHED_MANIFEST_NAME:
            self._skip(path, "it does not belong to the bundle")

    def _enter(self, directory: int, name: str, path: str) -> None:
        if path_problem(f"{path}/x") is not None:
            self._skip(path, "it does not belong to the bundle")
            return
        inner = os.open(name, _DIRECTORY_FLAGS, dir_fd=directory)
        try:
            self._visit(inner, f"{path}/")
        finally:
            os.close(inner)

    def _skip(self, path: str, why: str) -> None:
        self._problems.add(what=shown(path), why=f"skipped: {why}", action=NOT_OURS)


def _open_file(root: int, path: str) -> int:
    """A descriptor of the regular file at `path`, reached without following a link."""
    *folders, name = path.split("/")
    directory = os.dup(root)
    try:
        for folder in folders:
            inner = os.open(folder, _DIRECTORY_FLAGS, dir_fd=directory)
            os.close(directory)
            directory = inner
        file = os.open(name, _FILE_FLAGS, dir_fd=directory)
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(0, "no regular file")
    return file


def looks_like_bundle(root: int) -> bool:
    """Whether a directory holds a manifest of ours."""
    try:
        with open(_open_file(root, MANIFEST_NAME), "rb") as file:
            return b'"created_ns"' in file.read(1 << 16)
    except OSError:
        return False
