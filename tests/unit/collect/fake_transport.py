"""Hosts that live in memory: each answers with bytes the test gives it, or misbehaves.

In: what each host does. Out: a `Transport`, and what was asked of it.
"""

import io
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ncclprobe.collect.hosts import Host
from ncclprobe.collect.transport import HostError
from ncclprobe.model.evidence import Kind
from ncclprobe.probe.stream import HELLO_NAME, HOST_NAME, ITEM_NAME, TarStream

Pieces = Iterable[bytes]


class Answering(TarStream):
    """A stream to write; its bytes so far."""

    def __init__(self) -> None:
        self.buffer = io.BytesIO()
        super().__init__(self.buffer)

    def hello(self, **fields: Any) -> "Answering":
        self.add_json(HELLO_NAME, {"time_ns": time.time_ns(), **fields})
        return self

    def item(self, data: bytes, path: str = "gpu/gpu0.json", **fields: Any) -> "Answering":
        self.add_json(ITEM_NAME, {"path": path, "kind": str(Kind.GPU), "origin": "NVML", **fields})
        self._add(path, len(data), io.BytesIO(data))
        return self

    def summary(self, **fields: Any) -> bytes:
        self.add_json(HOST_NAME, {"python": "3.11.2", "job": {"run_id": "run1"}, "sources": [], "gaps": [], **fields})
        self.close()
        return self.buffer.getvalue()

    def cut(self) -> bytes:
        return self.buffer.getvalue()


def good_answer(data: bytes = b"{}") -> bytes:
    """A whole answer with one artifact."""
    return Answering().hello().item(data).summary()


@dataclass
class FakeProcess:
    """What a host sends, piece by piece; then its exit status and what it said on standard error."""

    pieces: Pieces
    deadline: float
    status: int | None = 0
    error_text: str = ""
    left: bytes = b""
    is_closed: threading.Event = field(default_factory=threading.Event)

    def __hash__(self) -> int:
        return id(self)

    def read(self, size: int) -> bytes:
        if not self.left:
            self.left = next(self.pieces, b"")  # type: ignore[call-overload]
        data, self.left = self.left[:size], self.left[size:]
        return data

    def finish(self) -> tuple[int | None, str]:
        return self.status, self.error_text

    def close(self) -> None:
        self.is_closed.set()


@dataclass
class FakeTransport:
    """`behaviours`: by host, the pieces it sends, or a function that starts it."""

    behaviours: Mapping[str, Pieces | Callable[["FakeTransport", Host, float], FakeProcess]]
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    processes: dict[str, FakeProcess] = field(default_factory=dict)

    def start(self, host: Host, command: str, payload: bytes, deadline: float) -> FakeProcess:
        stream = io.BytesIO(payload)
        stream.read(int(stream.readline()))
        self.requests[host.name] = json.loads(stream.readline())["request"]
        behaviour = self.behaviours[host.name]
        process = behaviour(self, host, deadline) if callable(behaviour) else FakeProcess(iter(behaviour), deadline)
        self.processes[host.name] = process
        return process


def hosts(*names: str) -> list[Host]:
    return [Host(name=name, address=f"{name}.example") for name in names]


def refuse(_: FakeTransport, host: Host, __: float) -> FakeProcess:
    raise HostError(f"{host.name} refuses", "check that sshd runs")
