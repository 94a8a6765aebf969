"""Writing a bundle while the evidence comes in.

In: artifacts and outcomes of many hosts at once, from many threads. Out: a bundle directory, or an archive at the end.

Whatever ends the collection, a bundle remains: an interrupted one is closed like any other, and of a killed one the
directory remains (for an archive: `NAME.partial-*` beside it) with a manifest that is at most about a second old.
"""

import dataclasses
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from types import TracebackType

from ncclprobe.bundle.folder import UNFINISHED_MANIFEST_NAME
from ncclprobe.bundle.manifest import to_json
from ncclprobe.bundle.packing import is_archive_name, pack
from ncclprobe.bundle.paths import HOSTS_NAME, MANIFEST_NAME, safe_name
from ncclprobe.model.errors import BundleError, UsageError
from ncclprobe.model.evidence import Artifact
from ncclprobe.model.manifest import MANIFEST_VERSION, HostOutcome, Manifest

# Below what the reader takes, with room for headers and directories.
_MAX_ITEMS = 100_000
_MAX_BYTES = 7 << 30

_ITEM_PERIOD_S = 1.0
# A manifest of many thousand items takes long to write: then at most a tenth of the time goes into it.
_QUICK_S = 0.02
_REST_FACTOR = 10


class BundleWriter:
    """Writes one bundle. A context manager: leaving it, for whatever reason, closes the bundle."""

    def __init__(self, directory: Path, target: Path, manifest: Manifest) -> None:
        """Use `BundleWriter.create`. `directory` takes the evidence as it comes; `target` is what was asked for."""
        self.path = target
        self._directory = directory
        self._manifest = manifest
        self._hosts: dict[str, HostOutcome] = {}
        self._items: dict[str, Artifact] = {}
        self._open: dict[str, _OpenArtifact] = {}
        self._host_names: dict[str, str] = {}
        self._names = _Names()
        self._lock = threading.RLock()
        self._left_bytes = _MAX_BYTES
        self._closed = False
        self._written_s = 0.0
        self._writing_took_s = 0.0

    @classmethod
    def create(cls, path: Path, tool_version: str, job: str | None, interval_s: float | None) -> "BundleWriter":
        """A new, private bundle: an archive if `path` ends in .tar.gz, .tgz or .tar, else a directory.

        UsageError when the archive exists, the directory is not empty, or either cannot be made.
        """
        manifest = Manifest(
            schema_version=MANIFEST_VERSION,
            tool_version=tool_version,
            created_ns=time.time_ns(),
            job=job,
            interval_s=interval_s,
            hosts=(),
            items=(),
        )
        try:
            directory = _archive_source(path) if is_archive_name(path) else _new_directory(path)
            (directory / HOSTS_NAME).mkdir(mode=0o700)
        except OSError as error:
            what = f"cannot write the bundle {path}: {error.strerror}"
            raise UsageError(what, "make its folder first, or choose another place with -o") from error
        writer = cls(directory, path, manifest)
        writer._save()
        return writer

    def __enter__(self) -> "BundleWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def add(self, artifact: Artifact, chunks: Iterable[bytes]) -> Artifact:
        """Write the chunks as they come; returns the artifact with its final path, size and SHA-256.

        The path becomes `hosts/<host>/<source>/<file>`; of `artifact.path` what follows `hosts/<host>/` is used, or all
        of it. If `chunks` raises, what came is kept and marked as truncated, and the error goes on to the caller.
        BundleError when the file cannot be written, or the bundle was closed meanwhile.
        """
        file = self._begin(artifact)
        was_cut = True
        try:
            for chunk in chunks:
                self._reserve(len(chunk))
                file.append(chunk)
            was_cut = False
        finally:
            done = self._finish(file, was_cut=was_cut)
        return done

    def add_host(self, outcome: HostOutcome) -> None:
        """Note how a host ended, in the place of an earlier outcome of the same name."""
        with self._lock:
            self._hosts[outcome.name] = outcome
            self._save_if_due(period_s=0.0)

    def set_job(self, job: str | None) -> None:
        """Note which job the evidence is of."""
        with self._lock:
            self._manifest = dataclasses.replace(self._manifest, job=job)
            self._save_if_due(period_s=0.0)

    def close(self) -> None:
        """Write the final manifest, and the archive if one was asked for; artifacts still coming in are cut off."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for file in list(self._open.values()):
                self._finish(file, was_cut=True)
            self._save()
        if self._directory != self.path:
            self._pack()

    def _begin(self, artifact: Artifact) -> "_OpenArtifact":
        with self._lock:
            if self._closed:
                raise BundleError("the bundle is already closed", "collect again")
            if len(self._items) + len(self._open) >= _MAX_ITEMS:
                raise _full(f"{_MAX_ITEMS} files")
            path = self._names.unique(self._safe_path(artifact))
            file = _OpenArtifact(self._directory, dataclasses.replace(artifact, path=path))
            self._open[path] = file
            return file

    def _reserve(self, size_bytes: int) -> None:
        with self._lock:
            self._left_bytes -= size_bytes
            if self._left_bytes < 0:
                raise _full(f"{_MAX_BYTES} bytes")

    def _finish(self, file: "_OpenArtifact", *, was_cut: bool) -> Artifact:
        done = file.finish(was_cut=was_cut)
        with self._lock:
            if self._open.pop(done.path, None) is not None:
                self._items[done.path] = done
                self._save_if_due(period_s=_ITEM_PERIOD_S)
        return done

    def _safe_path(self, artifact: Artifact) -> str:
        parts = [part for part in artifact.path.split("/") if part not in ("", ".")]
        inner = parts[2:] if parts[:1] == [HOSTS_NAME] else parts
        source = inner[0] if len(inner) > 1 else str(artifact.kind)
        # Always four parts, so that no file can stand where another one needs a directory.
        file = "_".join(inner[1:] or inner)
        return "/".join((HOSTS_NAME, self._host_name(artifact.host), safe_name(source), safe_name(file)))

    def _host_name(self, host: str) -> str:
        if host not in self._host_names:
            self._host_names[host] = self._names.unique(safe_name(host))
        return self._host_names[host]

    def _save_if_due(self, *, period_s: float) -> None:
        if self._writing_took_s > _QUICK_S:
            period_s = max(period_s, self._writing_took_s * _REST_FACTOR)
        if not self._closed and time.monotonic() - self._written_s >= period_s:
            self._save()

    def _save(self) -> None:
        start_s = time.monotonic()
        unfinished = self._directory / UNFINISHED_MANIFEST_NAME
        try:
            with open(unfinished, "w", encoding="ascii", opener=_private) as file:
                file.write(to_json(self._snapshot()))
            unfinished.replace(self._directory / MANIFEST_NAME)
        except OSError as error:
            raise _unwritable(self._directory / MANIFEST_NAME, error) from error
        self._written_s = time.monotonic()
        self._writing_took_s = self._written_s - start_s

    def _snapshot(self) -> Manifest:
        hosts = tuple(self._hosts[name] for name in sorted(self._hosts))
        items = tuple(self._items[path] for path in sorted(self._items))
        return dataclasses.replace(self._manifest, hosts=hosts, items=items)

    def _pack(self) -> None:
        try:
            pack(self._directory, [MANIFEST_NAME, *sorted(self._items)], self.path)
        except OSError as error:
            what = f"cannot write {self.path}: {error.strerror}"
            raise BundleError(what, f"all evidence is in {self._directory}, which can be analysed as it is") from error
        shutil.rmtree(self._directory, ignore_errors=True)


class _OpenArtifact:
    """A file being written. Its own lock lets `finish` cut off a writing thread between two chunks."""

    def __init__(self, directory: Path, artifact: Artifact) -> None:
        self._artifact = artifact
        self._size_bytes = 0
        self._sha256 = hashlib.sha256()
        self._lock = threading.Lock()
        self._path = directory / artifact.path
        try:
            for folder in (self._path.parent.parent, self._path.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            self._file = FileIO(self._path, "x", opener=_private)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def append(self, chunk: bytes) -> None:
        with self._lock:
            if self._file.closed:
                raise BundleError("the bundle was closed while evidence came in", "collect again")
            try:
                self._write(chunk)
            except OSError as error:
                raise _unwritable(self._path, error) from error

    def finish(self, *, was_cut: bool) -> Artifact:
        with self._lock:
            if not self._file.closed:
                self._file.close()
                self._artifact = dataclasses.replace(
                    self._artifact,
                    size_bytes=self._size_bytes,
                    sha256=self._sha256.hexdigest(),
                    truncated=self._artifact.truncated or was_cut,
                )
            return self._artifact

    def _write(self, chunk: bytes) -> None:
        # Unbuffered, so that the size and sum of a file cut off anywhere are those of the bytes on disk.
        rest = memoryview(chunk)
        while rest:
            count = self._file.write(rest)
            self._sha256.update(rest[:count])
            self._size_bytes += count
            rest = rest[count:]


class _Names:
    """Tells equal names apart by a number, also on file systems that ignore case."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """`name`, or `name-2`, `name-3`, ... if it was given out before."""
        key, candidate = name.lower(), name
        while candidate.lower() in self._used:
            number = self._next.get(key, 2)
            self._next[key] = number + 1
            candidate = f"{name}-{number}"
        self._used.add(candidate.lower())
        return candidate


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _new_directory(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    if any(path.iterdir()):
        raise UsageError(f"{path} is not empty", "choose another directory with -o, or empty this one")
    return path


def _archive_source(path: Path) -> Path:
    """The directory beside `path` that holds the evidence until the archive is written."""
    if os.path.lexists(path):
        raise UsageError(f"{path} already exists", "choose another name with -o, or remove it")
    return Path(tempfile.mkdtemp(prefix=f"{path.name}.partial-", dir=path.parent))


def _full(limit: str) -> BundleError:
    return BundleError(f"the bundle is full: it takes no more than {limit}", "collect fewer hosts at a time")


def _unwritable(path: Path, error: OSError) -> BundleError:
    return BundleError(f"cannot write {path}: {error.strerror}", "free space there, or choose another place with -o")
