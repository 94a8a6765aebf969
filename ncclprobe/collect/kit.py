"""What is sent to a host: the probe, the parsers and types it needs, and the tools of this machine's architecture.

In: the installed packages. Out: one zip, the shell command that starts it, and the bytes to feed that command.
"""

import importlib.util
import io
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import ncclprobe

_OURS = ("model", "parse", "probe")

# Whatever shell the account has runs this line, so it holds no newline, backslash, `!` or single quote inside, and is
# short enough for csh. Python programs that run here go first, for a host may have no other: but only our own or the
# system's, lest root should run what a user has put there. Their links are read, never their environment, which blocks
# on a process that hangs in the kernel.
_CHOOSE = (
    'for p in $(ls -l /proc/[0-9]*/exe 2>/dev/null | sed -n "s/.* -> //p" | grep -E "/python[0-9.]*$" | sort -u)'
    " python3 python3.14 python3.13 python3.12 python3.11 python3.10"
    " /usr/local/bin/python3 /usr/bin/python3 /opt/conda/bin/python3; do"
    ' case "$p" in /usr/*|/opt/*|python*);; *) [ -O "$p" ] || continue;; esac;'
    ' "$p" -ISc "import sys; sys.exit(sys.version_info < (3, 10))" </dev/null >/dev/null 2>&1 || continue;'
    ' exec "$p" -ISBc "import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))) # ncclprobe"; done;'
    " echo no Python 3.10 or newer >&2; exit 97"
)
COMMAND = f"exec /bin/sh -c '{_CHOOSE}'"
NO_PYTHON_STATUS = 97


def build(*, compressed: bool) -> bytes:
    """The zip: about 9 MB, nearly all of it py-spy; compressed about 3.4 MB, which takes a third of a second."""
    buffer = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method, compresslevel=1) as archive:
        root = Path(ncclprobe.__file__).parent
        archive.write(root / "__init__.py", "ncclprobe/__init__.py")
        for path in (path for package in _OURS for path in sorted((root / package).rglob("*.py"))):
            archive.write(path, f"ncclprobe/{path.relative_to(root).as_posix()}")
        for name, path in _others().items():
            archive.write(path, name)
    return buffer.getvalue()


def payload(kit: bytes, request: dict[str, Any]) -> bytes:
    """What the command reads: the size and text of the bootstrap, a header line, the kit."""
    bootstrap = (Path(ncclprobe.__file__).parent / "probe" / "bootstrap.py").read_bytes()
    header = json.dumps({"kit_bytes": len(kit), "machine": os.uname().machine, "request": request}).encode()
    return b"%d\n" % len(bootstrap) + bootstrap + header + b"\n" + kit


def _others() -> dict[str, Path]:
    """pynvml, py-spy and the two libraries of the live dump, as far as they are installed here."""
    beside = Path(sys.executable).with_name("py-spy")
    found = {
        "pynvml.py": _origin("pynvml"),
        "tools/py-spy": beside if beside.exists() else Path(shutil.which("py-spy") or ""),
        "tools/injector.so": _origin("pyinjector.injector"),
        "tools/injection.so": _origin("hypno.injection"),
    }
    return {name: path for name, path in found.items() if path is not None and path.is_file()}


def _origin(module: str) -> Path | None:
    """The file of an installed module, which is not imported."""
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None
