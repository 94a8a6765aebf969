"""Whether a host's key is the one that known_hosts files hold.

In: the lines of known_hosts files, a host's name and its key. Out: a `KeyStatus`, and a new line when asked to add one.
"""

import base64
import binascii
import contextlib
import fnmatch
import hashlib
import hmac
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

MAX_FILE_BYTES = 64 * 1024 * 1024


class KeyStatus(str, Enum):
    """What known_hosts say about a key."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCheck:
    """A status, and the place (`file:line`) of the entry that decided it, if any."""

    status: KeyStatus
    place: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    """A host's public key: its type such as `ssh-ed25519`, and its bytes."""

    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it."""
        digest = hashlib.sha256(self.blob).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    marker: str
    names: str
    kind: str
    blob: bytes
    place: str


class KnownHosts:
    """Entries of some known_hosts files, read once. New keys go to the first of `user_files`. Safe for threads."""

    def __init__(self, user_files: tuple[Path, ...], system_files: tuple[Path, ...] = ()) -> None:
        self._user_files = user_files
        self._lock = threading.Lock()
        self._entries = [entry for path in user_files + system_files for entry in _entries(path)]

    def kinds(self, name: str) -> tuple[str, ...]:
        """Types of the keys known for a host, so that it can be asked for one of these."""
        return tuple(dict.fromkeys(entry.kind for entry in self._matching(name) if not entry.marker))

    def check(self, name: str, key: HostKey) -> KeyCheck:
        """A host that is known by keys of other types only has changed too: it is not asked to be trusted anew."""
        entries = self._matching(name)
        for entry in entries:
            if entry.marker == "@revoked" and entry.blob == key.blob:
                return KeyCheck(status=KeyStatus.REVOKED, place=entry.place)
        plain = [entry for entry in entries if not entry.marker]
        if not plain:
            return KeyCheck(status=KeyStatus.UNKNOWN)
        for entry in plain:
            if entry.kind == key.kind and entry.blob == key.blob:
                return KeyCheck(status=KeyStatus.KNOWN, place=entry.place)
        same_kind = [entry for entry in plain if entry.kind == key.kind]
        return KeyCheck(status=KeyStatus.CHANGED, place=(same_kind or plain)[0].place)

    def add(self, name: str, key: HostKey, *, is_hashed: bool) -> None:
        """Trusts a key from now on. Where no file can be written it is trusted for this run only, as by ssh."""
        shown = _hashed(name) if is_hashed else name
        line = f"{shown} {key.kind} {base64.b64encode(key.blob).decode()}\n"
        with self._lock:
            self._entries.append(_Entry(marker="", names=shown, kind=key.kind, blob=key.blob, place="this run"))
            if self._user_files:
                with contextlib.suppress(OSError):
                    _append(self._user_files[0], line)

    def _matching(self, name: str) -> list[_Entry]:
        with self._lock:
            entries = tuple(self._entries)
        return [entry for entry in entries if _is_named(entry.names, name)]


def _entries(path: Path) -> Iterator[_Entry]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    except OSError:  # most users have one of the files, not all
        return
    for number, line in enumerate(text.split("\n"), start=1):
        entry = _entry(line.split(), f"{path}:{number}")
        if entry is not None:
            yield entry


def _entry(fields: list[str], place: str) -> _Entry | None:
    marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
    if len(fields) < 3 or fields[0].startswith("#"):
        return None
    try:
        blob = base64.b64decode(fields[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return _Entry(marker=marker, names=fields[0], kind=fields[1], blob=blob, place=place)


def _is_named(names: str, name: str) -> bool:
    """Whether an entry's first field means the host: hashed, or patterns of which no `!` one matches."""
    if names.startswith("|1|"):
        return _is_hash_of(names, name)
    is_match = False
    for pattern in names.lower().split(","):
        if pattern.startswith("!") and _matches(name, pattern[1:]):
            return False
        is_match = is_match or _matches(name, pattern)
    return is_match


def _matches(name: str, pattern: str) -> bool:
    # In these patterns only * and ? are special; brackets belong to `[name]:port`.
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def _is_hash_of(names: str, name: str) -> bool:
    try:
        _, _, salt, digest = names.split("|")
        return hmac.compare_digest(_digest(base64.b64decode(salt), name), base64.b64decode(digest))
    except (binascii.Error, ValueError):
        return False


def _hashed(name: str) -> str:
    salt = os.urandom(20)
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(_digest(salt, name)).decode()}"


def _digest(salt: bytes, name: str) -> bytes:
    return hmac.digest(salt, name.encode(), "sha1")  # the format's own hash; it hides names, it proves nothing


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    with path.open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        is_line_open = end > 0 and file.read(1) != b"\n"
        file.write(("\n" if is_line_open else "").encode() + line.encode())
