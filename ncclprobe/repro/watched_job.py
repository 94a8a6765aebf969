"""A reproducer's job while it runs, wherever it runs: whether it is stuck, how it ended, how to end it.

In: what its ranks print, and the CPU time they use. Out: `WatchedJob`; `Job` is one on this machine, `HostsJob` one
over hosts.
"""

import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

from ncclprobe.repro.job_logs import Logs
from ncclprobe.repro.reproducer import JobState

_QUIET_S = 1.5
_QUIET_START_S = 3.0  # in set-up
_PATIENCE_S = 20.0  # how long a job that will end may be quiet: processes that load torch take a while to
_POLL_S, _POLL_START_S = 0.05, 0.5

_Self = TypeVar("_Self", bound="WatchedJob")


class WatchedJob(ABC):
    """A running job. Use it in a `with` statement: leaving that stops it. Its files are there until then.

    `name` is what `--job` calls it, `logs` what its ranks print. `started`: how many ranks stand in their set-up; 0 if
    the job comes to `at_step`.
    """

    run_id: str
    name: str
    logs: Logs

    def __init__(self, logs: Logs, *, at_step: int, started: int) -> None:
        self.logs = logs
        self._at_step = at_step
        self._started = started

    @property
    @abstractmethod
    def pids(self) -> dict[int, int]:
        """Rank -> pid, of the ranks that are alive now; their own child processes are not among them."""

    @property
    @abstractmethod
    def processes(self) -> str:
        """What runs where, in words: its ranks and their pids."""

    @property
    @abstractmethod
    def place_of_logs(self) -> str:
        """Where what the ranks print is kept, in words."""

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> int | None:
        """The launcher's exit status (negative: a signal killed it), or None if it still runs after `timeout_s`."""

    @abstractmethod
    def stop(self) -> None:
        """End every process of the job and remove its files, at once. Doing it again does no harm."""

    @abstractmethod
    def _cpu_use(self) -> int:
        """CPU time that the ranks have used so far, so coarse that ranks that wait use none."""

    def wait_for(self, state: JobState, timeout_s: float) -> JobState:
        """Return as soon as the job is in that state, or in a final one; else after `timeout_s`, with what it does."""
        if state is not JobState.RUNNING:
            return self.wait_until_stuck(timeout_s, quiet_s=_PATIENCE_S if state is JobState.ENDED else None)
        deadline = time.monotonic() + timeout_s
        while not self._has_come_to_step() and time.monotonic() < deadline:
            if self.wait(timeout_s=_POLL_S) is not None:
                return JobState.ENDED
        return JobState.RUNNING if self._has_come_to_step() else JobState.STUCK

    def wait_until_stuck(self, timeout_s: float, quiet_s: float | None = None) -> JobState:
        """Return as soon as the job has ended, or is past the planted step and no rank prints for `quiet_s` seconds.

        In set-up nobody prints: there the ranks must use no CPU either.
        """
        if quiet_s is None:
            quiet_s = _QUIET_START_S if self._started else _QUIET_S
        deadline = time.monotonic() + timeout_s
        seen, quiet_since = self._signs_of_life(), time.monotonic()
        while self.wait(timeout_s=_POLL_START_S if self._started else _POLL_S) is None:
            now, signs = time.monotonic(), self._signs_of_life()
            if signs != seen:
                seen, quiet_since = signs, now
            elif now - quiet_since >= quiet_s and self._has_come_to_step():
                return JobState.STUCK
            if now >= deadline:
                return JobState.RUNNING
        return JobState.ENDED

    def _signs_of_life(self) -> tuple[object, int]:
        is_starting = self._started > 0 and self._has_come_to_step()
        return self.logs.sizes(), self._cpu_use() if is_starting else 0

    def _has_come_to_step(self) -> bool:
        if self._started:
            return len(self.logs.joining()) >= self._started
        # The planted step itself may never be printed, so the one before it will do; but silence at the start will not.
        return max(self.logs.steps().values(), default=0) >= max(1, self._at_step - 1)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
