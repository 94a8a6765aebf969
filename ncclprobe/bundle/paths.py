"""Names inside a bundle.

In: names from hosts, archives and manifests, all untrusted. Out: names that are safe to write, or why one is not.
"""

import re

MANIFEST_NAME = "manifest.json"
HOSTS_NAME = "hosts"
MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_DEPTH = 16

# Room below MAX_NAME_BYTES for the suffix that tells equal names apart.
_SAFE_LENGTH = 100


def safe_name(text: str) -> str:
    """One file or directory name made of letters, digits, `.`, `_` and `-`; never empty, never hidden, not unique."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", text)[:_SAFE_LENGTH]
    if not name or name[0] in ".-":
        name = f"_{name[1:]}"
    return name


def path_problem(path: str) -> str | None:
    """Why `path` cannot be an item of a bundle, as words that follow its name, or None when it can.

    An item lies below `hosts/`, and its path is relative, normalised, printable and of bearable length.
    """
    if not path.isprintable() or "\\" in path:
        return "holds control characters or backslashes"
    if path.startswith("/"):
        return "is absolute"
    parts = path.split("/")
    if ".." in parts:
        return "climbs with '..'"
    if "" in parts or "." in parts:
        return "is not normalised"
    if parts[0] != HOSTS_NAME or len(parts) == 1:
        return f"is not below {HOSTS_NAME}/"
    return "is too long" if _is_too_long(path, parts) else None


def _is_too_long(path: str, parts: list[str]) -> bool:
    longest_bytes = max(len(part.encode()) for part in parts)
    return len(parts) > MAX_DEPTH or longest_bytes > MAX_NAME_BYTES or len(path.encode()) > MAX_PATH_BYTES


def shown(text: str) -> str:
    """An untrusted name as one short, printable word for a message."""
    quoted = repr(text)
    return quoted if len(quoted) <= 100 else f"{quoted[:100]}...'"
