"""Opening a bundle that anybody may have made.

In: the path of a directory or of an archive, whatever its name. Out: a `Bundle`: its manifest, its bytes, and as gaps
what is wrong with it. A damaged bundle is read as far as it goes; one that is none, or is too large, is a BundleError.
"""

import dataclasses
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ncclprobe.bundle import archive, folder
from ncclprobe.bundle.manifest import MAX_MANIFEST_BYTES, read_manifest
from ncclprobe.bundle.paths import MANIFEST_NAME, shown
from ncclprobe.bundle.problems import Problems
from ncclprobe.bundle.rebuild import rebuilt_manifest
from ncclprobe.bundle.store import DEFAULT_LIMITS, Limits, Store
from ncclprobe.model.errors import BundleError, UsageError
from ncclprobe.model.evidence import Artifact, Gap
from ncclprobe.model.manifest import Manifest

MAX_ARTIFACT_BYTES = 256 << 20

_RECOLLECT = "fetch or collect the bundle again"


class Bundle:
    """An open bundle. All items of `manifest` are there; `gaps` tells of those that are not, or are not as collected.

    Reading is safe from several threads, and in a forked child while the parent keeps the bundle open.
    """

    def __init__(self, manifest: Manifest, gaps: tuple[Gap, ...], store: Store) -> None:
        self.manifest = manifest
        self.gaps = gaps
        self._store = store

    def read(self, artifact: Artifact, max_bytes: int = MAX_ARTIFACT_BYTES) -> bytes:
        """The bytes of one item; BundleError when it is longer than `max_bytes`, is not there, or cannot be read."""
        name = shown(artifact.path)
        if artifact.path not in self._store.files:
            raise BundleError(f"{name} is not in the bundle", _RECOLLECT)
        try:
            return _joined(self._store, artifact.path, max_bytes)
        except OSError as error:
            raise BundleError(f"{name} cannot be read: {error.strerror}", _RECOLLECT) from error
        except ValueError as error:
            raise BundleError(f"{name} is read after its bundle was closed", "read within the `with` block") from error


@contextmanager
def open_bundle(path: Path, limits: Limits = DEFAULT_LIMITS) -> Iterator[Bundle]:
    """Open a directory or archive; UsageError when it cannot be opened, BundleError when it is no usable bundle."""
    problems = Problems()
    with _descriptor(path) as descriptor:
        store = _store(descriptor, path, limits, problems)
        try:
            manifest = _manifest(store, path, problems)
            items = _present_items(manifest, store, problems)
            yield Bundle(dataclasses.replace(manifest, items=items), problems.gaps(), store)
        finally:
            store.close()


def is_bundle(path: Path) -> bool:
    """Whether a directory holds a manifest, or an archive starts like a bundle; reads little, and never fails."""
    try:
        with _descriptor(path) as descriptor:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                return folder.looks_like_bundle(descriptor)
            with _file(descriptor, path) as file:
                return archive.looks_like_bundle(file)
    except (UsageError, BundleError, OSError):
        return False


@contextmanager
def _descriptor(path: Path) -> Iterator[int]:
    # A link given by the user is followed; a fifo opens at once because of O_NONBLOCK, and is then refused.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"cannot open {path}: {error.strerror}", "check the path and its permissions") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _file(descriptor: int, path: Path) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise BundleError(f"{path} is neither a directory nor a regular file", "give a bundle's directory or archive")
    return open(descriptor, "rb", closefd=False)


def _store(descriptor: int, path: Path, limits: Limits, problems: Problems) -> Store:
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return folder.Folder(descriptor, limits, problems)
        with _file(descriptor, path) as file:
            return archive.Archive(file, limits, problems)
    except OSError as error:
        advice = "make sure that it can be read, and that TMPDIR has room for the unpacked archive"
        raise BundleError(f"{path} cannot be read: {error.strerror}", advice) from error


def _manifest(store: Store, path: Path, problems: Problems) -> Manifest:
    if MANIFEST_NAME in store.files:
        return read_manifest(_manifest_text(store), problems)
    rebuilt = rebuilt_manifest(store.files, problems)
    if rebuilt is None:
        what = f"{path} is not a bundle, or too little is left of it: it holds no {MANIFEST_NAME} and no artifacts"
        raise BundleError(what, "give what `ncclprobe collect -o` wrote, or fetch it again")
    return rebuilt


def _manifest_text(store: Store) -> str:
    try:
        return _joined(store, MANIFEST_NAME, MAX_MANIFEST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{MANIFEST_NAME} cannot be read: {error}", _RECOLLECT) from error


def _joined(store: Store, path: str, max_bytes: int) -> bytes:
    size_bytes = store.files[path].size_bytes
    if size_bytes > max_bytes:
        what = f"{shown(path)} has {size_bytes} bytes; at most {max_bytes} are read"
        raise BundleError(what, "leave this file out, or look at it by hand")
    return b"".join(store.chunks(path))


def _present_items(manifest: Manifest, store: Store, problems: Problems) -> tuple[Artifact, ...]:
    unlisted = store.files.keys() - {item.path for item in manifest.items} - {MANIFEST_NAME}
    for path in sorted(unlisted):
        why = "not used: the manifest does not list it as something that this version knows"
        problems.add(what=shown(path), why=why, action="nothing, unless you miss this file")
    checked = (_checked(item, store, problems) for item in manifest.items)
    return tuple(item for item in checked if item is not None)


def _checked(item: Artifact, store: Store, problems: Problems) -> Artifact | None:
    """The item, marked as truncated when bytes are missing, or None when there is nothing to read."""

    def note(why: str) -> None:
        problems.add(who=item.host, what=shown(item.path), why=why, action=_RECOLLECT)

    if item.path not in store.files:
        note("the manifest lists it, but it is not in the bundle")
        return None
    try:
        size_bytes, sha256 = _measured(store, item.path)
    except OSError as error:
        note(f"it cannot be read: {error.strerror}")
        return None
    if item.size_bytes is not None and size_bytes < item.size_bytes:
        note("its end is missing")
        return dataclasses.replace(item, truncated=True)
    if item.size_bytes not in (None, size_bytes) or item.sha256 not in (None, sha256):
        note("it is not as collected: its size or its SHA-256 differs")
    return item


def _measured(store: Store, path: str) -> tuple[int, str]:
    size_bytes, sha256 = 0, hashlib.sha256()
    for chunk in store.chunks(path):
        size_bytes += len(chunk)
        sha256.update(chunk)
    return size_bytes, sha256.hexdigest()
