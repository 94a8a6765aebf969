"""What `analyze` was given: a bundle, or loose files and directories of evidence, in any mix.

In: paths. Out: `Inputs`: artifacts with their bytes at hand, the hosts a bundle names, and gaps for what is of no use.
A directory that holds bundles is taken for those bundles: what else is in it was written about them.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ncclprobe.bundle.packing import is_archive_name
from ncclprobe.bundle.reader import Bundle, is_bundle, open_bundle
from ncclprobe.model.errors import NcclprobeError, ParseError, UsageError
from ncclprobe.model.evidence import Artifact, Gap, Kind
from ncclprobe.model.manifest import HostOutcome
from ncclprobe.parse import recognize
from ncclprobe.parse.regular_file import open_regular

MAX_FILES = 200_000
MAX_FILE_BYTES = 256 << 20
_NO_HOST = ""
_SHOWN = 3


@dataclass(slots=True)
class Inputs:
    """`items` are artifacts and how to read each; what cannot be read raises NcclprobeError then.

    A loose log is given as its path: it may be too large to be carried about.
    """

    items: list[tuple[Artifact, Callable[[], bytes | Path]]] = field(default_factory=list)
    hosts: list[HostOutcome] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


@contextmanager
def open_inputs(paths: Iterable[Path]) -> Iterator[Inputs]:
    """UsageError for a path that does not exist; BundleError for a single file that is nothing we know."""
    inputs = Inputs()
    with ExitStack() as stack:
        for path in paths:
            if not path.exists():
                raise UsageError(f"{path} does not exist", "name a bundle, a directory, or files of evidence")
            bundles = _bundles(path)
            for bundle in bundles:
                _add_bundle(inputs, stack.enter_context(open_bundle(bundle)))
            if not bundles:
                _add_files(inputs, path)
            elif bundles != [path]:
                inputs.gaps += _beside(path, bundles)
        yield inputs


def _bundles(path: Path) -> list[Path]:
    """The path itself, if it is one, or those right below it."""
    if is_bundle(path) or _is_archive(path):
        return [path]
    below = (one for one in _visible(path) if not one.is_symlink() and (os.path.isdir(one) or is_archive_name(one)))
    return [one for one in below if is_bundle(one)]


def _visible(path: Path) -> list[Path]:
    """What a directory holds, in order of name; nothing of a file, or of a directory that may not be read."""
    try:
        return sorted(path / name for name in os.listdir(path) if not name.startswith("."))
    except OSError:
        return []


def _beside(path: Path, bundles: list[Path]) -> Iterator[Gap]:
    others = [one.name for one in _visible(path) if one not in bundles]
    if others:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        what, why = (
            f"not read: {', '.join(others[:_SHOWN])}{more}",
            "what lies beside a bundle is taken for notes on it",
        )
        yield Gap(who=str(path), what=what, why=why, action="nothing, when it is none; else name it, too")


def _is_archive(path: Path) -> bool:
    """A gzip or tar file can only be meant as a bundle, however damaged."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(512)
    return head.startswith(b"\x1f\x8b") or head[257:262] == b"ustar"


def _add_bundle(inputs: Inputs, bundle: Bundle) -> None:
    inputs.items += [(item, lambda item=item: bundle.read(item)) for item in bundle.manifest.items]  # type: ignore[misc]
    inputs.hosts += bundle.manifest.hosts
    inputs.gaps += bundle.gaps


def _add_files(inputs: Inputs, root: Path) -> None:
    for number, path in enumerate(_files(root)):
        if number == MAX_FILES:
            inputs.gaps.append(_gap(str(root), "its other files were left out", f"it holds over {MAX_FILES} files"))
            return
        _add_file(inputs, path, _shown(path, root))


def _files(root: Path) -> Iterator[Path]:
    """Every file below, in order of name; hidden ones and links are left alone."""
    if not root.is_dir():
        yield root
        return
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder) / name for name in sorted(names) if not name.startswith("."))


def _shown(path: Path, root: Path) -> str:
    return path.name if path == root else path.relative_to(root).as_posix()


def _add_file(inputs: Inputs, path: Path, name: str) -> None:
    try:
        head = _read(path, recognize.HEAD_BYTES)
    except NcclprobeError as error:
        inputs.gaps.append(_gap(name, "it cannot be read", str(error)))
        return
    kind = recognize.kind_of(head, path.name)
    if kind is None:
        why = "it is empty" if not head else "it is none of the kinds of evidence that can be read"
        inputs.gaps.append(_gap(name, "it says nothing", why))
        return
    artifact = Artifact(path=name, kind=kind, host=_NO_HOST, origin=str(path), rank=recognize.rank_of(kind, path.name))
    inputs.items.append((artifact, lambda: path if kind is Kind.RANK_LOG else _read(path, MAX_FILE_BYTES)))


def _gap(who: str, what: str, why: str) -> Gap:
    return Gap(who=who, what=what, why=why, action="nothing, when the rest decides")


def _read(path: Path, limit_bytes: int) -> bytes:
    """Never follows a link, and never opens a pipe or a device: that could block."""
    with open_regular(path) as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes and limit_bytes == MAX_FILE_BYTES:
        raise ParseError(f"it is larger than {limit_bytes >> 20} MiB", "no such file of evidence is")
    return data[:limit_bytes]
