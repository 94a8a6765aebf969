"""What a bundle directory and a bundle archive have in common.

In: nothing. Out: `Store`, the two forms as the reader sees them, and the limits that both keep.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from ncclprobe.model.errors import BundleError

CHUNK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a bundle may hold: `members` entries of any kind, and `total_bytes` uncompressed, skipped ones included."""

    members: int = 200_000
    total_bytes: int = 8 << 30


DEFAULT_LIMITS = Limits()


def too_many(limits: Limits) -> BundleError:
    """The error for a bundle with more entries than `limits` allow."""
    return BundleError(f"the bundle has more than {limits.members} entries", "collect fewer hosts at a time")


def too_large(limits: Limits) -> BundleError:
    """The error for a bundle that holds more bytes than `limits` allow."""
    what = f"the bundle holds more than {limits.total_bytes} bytes, uncompressed"
    return BundleError(what, "collect fewer hosts at a time")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A regular file that is there. `modified_s` is its time stamp in seconds since the epoch."""

    size_bytes: int
    modified_s: int


class Store(Protocol):
    """The files of a bundle, by their paths in it: `manifest.json`, and whatever safely lies below `hosts/`."""

    @property
    def files(self) -> Mapping[str, StoredFile]:
        """All regular files with acceptable paths, whether the manifest lists them or not."""

    def chunks(self, path: str) -> Iterator[bytes]:
        """The bytes of one of `files`; OSError when it can no longer be read."""

    def close(self) -> None:
        """Give back what the store holds; it cannot be read afterwards."""
