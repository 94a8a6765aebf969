"""A manifest for a bundle that has lost its own.

In: the files that are there. Out: what their paths tell: the host, and the kind if the folder of the source names one.
"""

from collections.abc import Mapping

from ncclprobe.bundle.paths import MANIFEST_NAME
from ncclprobe.bundle.problems import Problems
from ncclprobe.bundle.store import StoredFile
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.manifest import MANIFEST_VERSION, HostOutcome, Manifest, Outcome

_KINDS = {kind.value: kind for kind in Kind}
_MAX_SECONDS = 1 << 33


def rebuilt_manifest(files: Mapping[str, StoredFile], problems: Problems) -> Manifest | None:
    """A partial manifest of all files at `hosts/<host>/<kind>/<file>`, or None when there are none.

    Ranks, commands, times and check sums are unknown; `created_ns` is the newest time stamp of a file.
    """
    items = tuple(item for path in sorted(files) if (item := _artifact(path)) is not None)
    if not items:
        return None
    problems.add(
        what=MANIFEST_NAME,
        why="it is not in the bundle; one was made from the paths, without ranks, times and check sums",
        action="fetch or collect the bundle again",
    )
    newest_s = max(files[item.path].modified_s for item in items)
    return Manifest(
        schema_version=MANIFEST_VERSION,
        tool_version="unknown",
        created_ns=min(max(newest_s, 0), _MAX_SECONDS) * 1_000_000_000,
        job=None,
        interval_s=None,
        hosts=tuple(
            HostOutcome(name=host, address=host, outcome=Outcome.PARTIAL)
            for host in sorted({item.host for item in items})
        ),
        items=items,
    )


def _artifact(path: str) -> Artifact | None:
    parts = path.split("/")
    if len(parts) < 4:
        return None
    host, source = parts[1:3]
    kind = _KINDS.get(source.replace("_", "-"))
    return None if kind is None else Artifact(path=path, kind=kind, host=host, origin="unknown")
