"""The supervisor of one host's share of a job, as it is heard from here.

In: its process. Out: `RemoteSupervisor`: the pids of its ranks, what they have printed, and how it all ended.
"""

import json
import re
import signal
import threading
from collections.abc import Iterable
from typing import Any

from ncclprobe.model.errors import NcclprobeError
from ncclprobe.repro.places import Process, lines, shown

_KEPT_CHARACTERS = 64 << 10
_RANK = re.compile(r"[0-9]{1,7}")
_LOST_ADVICE = "run it again; if it is lost again, look at the host and its network"


class Output:
    """A file on the host: its size in bytes, and its end."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.tail = ""

    def add(self, text: str) -> None:
        """What has come to it."""
        self.size_bytes += len(text.encode())
        self.tail = (self.tail + text)[-_KEPT_CHARACTERS:]


class RemoteSupervisor:
    """Listens in a thread of its own until the host's supervisor ends; `changed` is notified of all that is new.

    `launcher_pid` is None until the ranks are started, `exit_status` until they have ended. `outputs`: file -> what it
    holds. `failure` is why there is no launcher, `loss` why nothing more will come.
    """

    def __init__(self, host: str, process: Process, files: Iterable[str], changed: threading.Condition) -> None:
        self.host = host
        self.launcher_pid: int | None = None
        self.exit_status: int | None = None
        self.ranks: dict[int, int] = {}
        self.cpu_use = 0
        self.outputs = {name: Output() for name in files}
        self.failure = ""
        self.loss: NcclprobeError | None = None
        self._process = process
        self._changed = changed
        self._is_closing = False
        threading.Thread(target=self._listen, name=f"supervisor of {host}", daemon=True).start()

    @property
    def has_started(self) -> bool:
        """Whether its ranks have been started."""
        return self.launcher_pid is not None

    @property
    def is_over(self) -> bool:
        """Whether its ranks have ended, or nothing more will be heard of them."""
        return self.exit_status is not None

    def close(self) -> None:
        """End it, and with it all that it has started."""
        self._is_closing = True
        self._process.close()

    def _listen(self) -> None:
        reason = ""
        try:
            for line in lines(self._process):
                with self._changed:
                    self._hear(line)
                    self._changed.notify_all()
            reason = shown(self._process.finish()[1].strip().rpartition("\n")[2])
        except NcclprobeError as error:
            if not self._is_closing:
                self.loss = NcclprobeError(f"{self.host}: {error}", _LOST_ADVICE)
        finally:
            with self._changed:
                self.failure = self.failure or reason or "its supervisor died"
                self.exit_status = -signal.SIGKILL if self.exit_status is None else self.exit_status
                self._changed.notify_all()

    def _hear(self, line: str) -> None:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            self.failure = shown(line)
            return
        if isinstance(said, dict):
            self._hear_news(said)
        elif isinstance(said, int) and self.launcher_pid is None:
            self.launcher_pid = said
        elif isinstance(said, int):
            self.exit_status = said

    def _hear_news(self, news: dict[str, Any]) -> None:
        ranks, cpu_use, texts = news.get("ranks"), news.get("cpu_use"), news.get("texts")
        if isinstance(ranks, dict):
            numbered = ((rank, pid) for rank, pid in ranks.items() if _RANK.fullmatch(rank) and isinstance(pid, int))
            self.ranks = {int(rank): pid for rank, pid in numbered}
        if isinstance(cpu_use, int):
            self.cpu_use = cpu_use
        for name, text in texts.items() if isinstance(texts, dict) else ():
            if name in self.outputs and isinstance(text, str):
                self.outputs[name].add(text)
