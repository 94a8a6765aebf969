"""A server that speaks the protocol of NCCL's RAS service.

In: the report it gives, and how it behaves. Out: the port it listens at, and what clients said to it.
"""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class FakeRas:
    """Each connection is answered in a thread of its own.

    `has_json`: `SET FORMAT` is known, as from NCCL 2.28.7 on. `silent`: so many connections are accepted and not
    answered, as by ranks that are stopped. `resets`: so many connections are reset in the middle of the report.
    `pause_s`: between the writes of a report.
    """

    text: str = ""
    json: str = ""
    has_json: bool = True
    silent: int = 0
    resets: int = 0
    pause_s: float = 0.0
    greeting: str = "SERVER PROTOCOL 2"
    said: list[list[str]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)

    def serve(self, listener: socket.socket) -> None:
        """Until the listener is closed."""
        with suppress(OSError):
            while True:
                connection, peer = listener.accept()
                self.ports.append(peer[1])
                self.said.append([])
                threading.Thread(target=self._talk, args=(connection, self.said[-1]), daemon=True).start()

    def _talk(self, connection: socket.socket, said: list[str]) -> None:
        with connection, suppress(OSError):
            if self.silent:
                self.silent -= 1
                while connection.recv(1_024):
                    pass
                return
            is_json = False
            for line in connection.makefile("r"):
                said.append(line.strip())
                words = line.upper().split()
                if words[:2] == ["VERBOSE", "STATUS"] or words == ["STATUS"]:
                    self._report(connection, self.json if is_json else self.text)
                    return
                reply = self._reply(line.strip(), words)
                is_json = is_json or (reply == "OK" and words == ["SET", "FORMAT", "JSON"])
                connection.sendall(f"{reply}\n".encode())

    def _reply(self, line: str, words: list[str]) -> str:
        if words[:2] == ["CLIENT", "PROTOCOL"]:
            return self.greeting
        if words[0] == "TIMEOUT":
            return "OK" if words[1].isdigit() else f"ERROR: Invalid timeout value {words[1]}"
        if words[:2] == ["SET", "FORMAT"] and self.has_json:
            return "OK" if words[2] in ("TEXT", "JSON") else f"ERROR: Invalid format {words[2]}"
        return f"ERROR: Unknown command {line}"

    def _report(self, connection: socket.socket, report: str) -> None:
        data = report.encode()
        third = len(data) // 3 + 1
        for number, start in enumerate(range(0, len(data), third)):
            if number == 2 and self.resets:
                self.resets -= 1
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            connection.sendall(data[start : start + third])
            time.sleep(self.pause_s)


@contextmanager
def serving(fake: FakeRas, host: str = "127.0.0.1") -> Iterator[int]:
    """The port it listens at while the context lasts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        thread = threading.Thread(target=fake.serve, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)
