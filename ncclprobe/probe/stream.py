"""The tar stream a probe writes.

In: files and small documents. Out: a line that marks the start, because the shell of an account may print something
first; then tar members: an artifact's description (`item.json`), the artifact itself, and documents in between.
"""

import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any, BinaryIO

START_MARK = b"\nncclprobe stream 1\n"
HELLO_NAME, ITEM_NAME, HOST_NAME = "hello.json", "item.json", "host.json"


class TarStream:
    """Members go out whole and at once: `tarfile` itself would hold back the last 10 KiB."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        output.write(START_MARK)

    def add(self, file: Path, size_bytes: int, item: dict[str, Any]) -> None:
        """A file of that size; `item` describes it, with a `path` relative to the host's folder."""
        self.add_json(ITEM_NAME, item)
        with file.open("rb") as data:
            self._add(item["path"], size_bytes, data)

    def add_json(self, name: str, document: dict[str, Any]) -> None:
        """A small document."""
        data = json.dumps(document).encode()
        self._add(name, len(data), io.BytesIO(data))

    def close(self) -> None:
        """Writes the end of the archive: without it the reader knows that the stream was cut."""
        self._output.write(bytes(2 * tarfile.BLOCKSIZE))
        self._output.flush()

    def _add(self, name: str, size_bytes: int, data: BinaryIO) -> None:
        info = tarfile.TarInfo(name)
        info.size = size_bytes
        self._output.write(info.tobuf(tarfile.PAX_FORMAT))
        shutil.copyfileobj(data, self._output)
        self._output.write(bytes(-size_bytes % tarfile.BLOCKSIZE))
        self._output.flush()
