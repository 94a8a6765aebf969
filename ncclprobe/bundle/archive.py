"""A bundle in a tar archive.

In: an open archive, untrusted. Out: its acceptable files, copied to a temporary file without a name; and what was left
out.

No name of the archive ever becomes a name on this machine, so there is nothing to escape from; and the copy vanishes
with the process, however that ends.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ncclprobe.bundle.paths import HOSTS_NAME, MANIFEST_NAME, path_problem, shown
from ncclprobe.bundle.problems import NOT_OURS, Problems
from ncclprobe.bundle.store import CHUNK_BYTES, DEFAULT_LIMITS, Limits, StoredFile
from ncclprobe.bundle.tarstream import BLOCK_BYTES, DamagedError, Member, TarStream
from ncclprobe.model.errors import BundleError

_PEEK_BYTES = 1 << 16
# Slashes in `hosts/<host>/<source>/<file>`.
_DEPTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy(StoredFile):
    """A file in the temporary file, from `offset` on."""

    offset: int


class Archive:
    """The store of an archive (see `store.Store`). What is cut off or not acceptable goes to `problems`."""

    def __init__(self, file: BinaryIO, limits: Limits, problems: Problems) -> None:
        self.files: dict[str, _Copy] = {}
        self._problems = problems
        self._folder: str | None = None
        self._copies = tempfile.TemporaryFile(prefix="ncclprobe-")  # noqa: SIM115 - `close` closes it
        try:
            self._copy_all(TarStream(file, limits))
        except BaseException:
            self.close()
            raise

    def chunks(self, path: str) -> Iterator[bytes]:
        """The bytes of one of `files`."""
        copy = self.files[path]
        for start in range(0, copy.size_bytes, CHUNK_BYTES):
            count = min(CHUNK_BYTES, copy.size_bytes - start)
            yield os.pread(self._copies.fileno(), count, copy.offset + start)

    def close(self) -> None:
        """Remove the copies."""
        # On a full disk the file fails once more to write what it still holds.
        with contextlib.suppress(OSError):
            self._copies.close()

    def _copy_all(self, tar: TarStream) -> None:
        try:
            for member in tar.members():
                path = self._accepted(member)
                if path is not None:
                    self._copy(path, member, tar.data())
        except DamagedError as damage:
            action = "fetch or collect the bundle again; what could be read is used"
            self._problems.add(what="the rest of the archive", why=f"the archive {damage}", action=action)
        self._copies.flush()

    def _copy(self, path: str, member: Member, data: Iterable[bytes]) -> None:
        offset = self._copies.tell()
        try:
            for chunk in data:
                self._copies.write(chunk)
        finally:
            size_bytes = self._copies.tell() - offset
            # Half a file is evidence; half a manifest is not JSON, and one can be made from the paths instead.
            if size_bytes == member.size_bytes or path != MANIFEST_NAME:
                self.files[path] = _Copy(offset=offset, size_bytes=size_bytes, modified_s=member.modified_s)

    def _accepted(self, member: Member) -> str | None:
        """The path in the bundle of a member to keep, or None; unless it is a mere directory, the reason is noted."""
        folder, path = _split(member.name)
        why = _refusal(member, path)
        if why is None and member.kind == "directory":
            return None
        if why is None and self._folder not in (None, folder):
            why = "it lies beside the bundle"
        if why is None and path in self.files:
            why = "the archive already held a file of that path"
        if why is None:
            self._folder = folder
            return path
        self._problems.add(what=shown(member.name), why=f"skipped: {why}", action=NOT_OURS)
        return None


def _split(name: str) -> tuple[str, str]:
    """The folder of the archive and the path in the bundle.

    The folder is "" or, in an archive packed by hand, one of the user's choice; the path is "" if there is none.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    for start, part in enumerate(parts[:2]):
        if part in (MANIFEST_NAME, HOSTS_NAME):
            return "/".join(parts[:start]), "/".join(parts[start:])
    return "", ""


def _refusal(member: Member, path: str) -> str | None:
    """Why a member cannot be kept; None for a good file, and for a directory that stays inside."""
    if member.name.startswith("/") or ".." in member.name.split("/"):
        return "its path leads out of the bundle"
    if member.kind == "directory":
        return None
    if member.kind != "file":
        return f"it is no regular file: {member.kind}"
    if not path:
        return "it does not belong to the bundle"
    problem = None if path == MANIFEST_NAME else path_problem(path)
    return problem and f"its path {problem}"


def looks_like_bundle(file: BinaryIO) -> bool:
    """Whether one of the first members of an archive belongs to a bundle; reads little of it."""
    passed_bytes = 0
    try:
        for member in TarStream(file, DEFAULT_LIMITS).members():
            path = _split(member.name)[1]
            if path == MANIFEST_NAME or path.count("/") == _DEPTH:
                return True
            passed_bytes += BLOCK_BYTES + member.size_bytes
            if passed_bytes > _PEEK_BYTES:
                break
    except (DamagedError, BundleError):
        pass
    return False
