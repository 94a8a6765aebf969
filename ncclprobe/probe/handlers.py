"""Asking torch's worker server, which a process runs to be asked.

In: a connection, a method, a path. Out: the body of the answer, within a deadline and a size; OSError without one.

It speaks HTTP: GET /handler/ lists the handlers as JSON, POST /handler/NAME runs one (torch 2.4 and later).
"""

import io
import json
import socket
import time
from http.client import HTTPException, HTTPResponse

LIMIT_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 16


class _Recorded:
    """An answer that has come, as the socket that `HTTPResponse` wants."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._data)


def names(connection: socket.socket, deadline: float) -> set[str]:
    """The handlers; OSError when the other side is no worker server."""
    try:
        found = json.loads(exchange(connection, "GET", "/handler/", deadline))
    except (ValueError, RecursionError):
        raise OSError("it does not answer as a worker server does") from None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise OSError("it does not answer as a worker server does")
    return set(found)


def call(connection: socket.socket, name: str, deadline: float) -> bytes:
    """What the handler gives."""
    return exchange(connection, "POST", f"/handler/{name}", deadline)


def exchange(connection: socket.socket, method: str, path: str, deadline: float) -> bytes:
    """One request; the connection is closed. `deadline` is of `time.monotonic()`."""
    with connection:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        connection.sendall(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        answer = _receive(connection, deadline)
    response = HTTPResponse(_Recorded(answer), method=method)  # type: ignore[arg-type]
    try:
        response.begin()
        body = response.read()
    except (HTTPException, ValueError) as error:
        raise OSError(f"its answer is not HTTP, or cut off: {type(error).__name__}") from None
    if response.status != 200:
        raise OSError(f"it answers {response.status} {response.reason[:60]}")
    return body


def _receive(connection: socket.socket, deadline: float) -> bytes:
    """All that comes until the other side closes."""
    pieces: list[bytes] = []
    size_bytes = 0
    while True:
        left_s = deadline - time.monotonic()
        try:
            if left_s <= 0:
                raise TimeoutError
            connection.settimeout(left_s)
            piece = connection.recv(_CHUNK_BYTES)
        except TimeoutError:
            raise TimeoutError("it did not answer in time") from None
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size_bytes += len(piece)
        if size_bytes > LIMIT_BYTES:
            raise OSError(f"its answer is longer than {LIMIT_BYTES >> 20} MiB")
