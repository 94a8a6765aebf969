"""A reproducer's job while it runs.

In: its supervisor and its private directory. Out: `Job`: its pids, whether it is stuck, how it ended, how to end it.
"""

import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from ncclprobe.model.errors import NcclprobeError
from ncclprobe.repro import supervisor
from ncclprobe.repro.job_logs import JobLogs
from ncclprobe.repro.reproducer import JobState

_QUIET_S = 1.5
_QUIET_START_S = 3.0  # in set-up
_PATIENCE_S = 20.0  # how long a job that will end may be quiet: processes that load torch take a while to
_POLL_S, _POLL_START_S = 0.05, 0.5
_TICKS_AT_REST = 10  # 0.1 s of CPU: what ranks that wait use together within `_QUIET_START_S`, at most
_STOP_DEADLINE_S = 2 * supervisor.KILL_DEADLINE_S + 5.0


class Job:
    """A running job. Use it in a `with` statement: leaving that stops it. Its files are there until then.

    `name` is what `--job` calls it. `started`: how many ranks stand in their set-up; 0 if the job comes to `at_step`.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        directory: Path,
        run_id: str,
        at_step: int,
        *,
        name: str = "",
        started: int = 0,
        cgroups: Iterable[str] = (),
    ) -> None:
        self.run_id = run_id
        self.name = name or run_id
        self.directory = directory
        self.logs = JobLogs(directory)
        self._at_step = at_step
        self._started = started
        self._cgroups = tuple(cgroups)
        self._supervisor = process
        self._exit_status: int | None = None
        self.launcher_pid = self._read_pid()

    def _read_pid(self) -> int:
        assert self._supervisor.stdout
        answer = self._supervisor.stdout.readline().decode(errors="replace").strip()
        if not answer.isdigit():
            self.stop()
            reason = answer or "its supervisor died"
            raise NcclprobeError(
                f"the job could not be started: {reason}", f"check that {self.directory.parent} has room"
            )
        return int(answer)

    @property
    def pids(self) -> dict[int, int]:
        """Rank -> pid, of the ranks that are alive now; their own child processes are not among them."""
        environments = supervisor.processes_of(self.run_id)
        numbered = {pid: int(environment["RANK"]) for pid, environment in environments.items() if "RANK" in environment}
        return {
            rank: pid
            for pid, rank in sorted(numbered.items(), key=lambda item: item[::-1])
            if supervisor.parent_of(pid) not in numbered
        }

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
        ticks = sum(map(supervisor.cpu_ticks_of, self.pids.values())) if is_starting else 0
        return self.logs.sizes(), ticks // _TICKS_AT_REST

    def _has_come_to_step(self) -> bool:
        if self._started:
            return len(self.logs.joining()) >= self._started
        # The planted step itself may never be printed, so the one before it will do; but silence at the start will not.
        return max(self.logs.steps().values(), default=0) >= max(1, self._at_step - 1)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The launcher's exit status (negative: a signal killed it), or None if it still runs after `timeout_s`."""
        assert self._supervisor.stdout
        if self._exit_status is None and select.select([self._supervisor.stdout], [], [], timeout_s)[0]:
            # Nothing but the end of the stream: somebody has killed the supervisor.
            answer = self._supervisor.stdout.readline().strip()
            self._exit_status = int(answer or -signal.SIGKILL)
        return self._exit_status

    def stop(self) -> None:
        """End every process of the job and remove its files, at once. Doing it again does no harm."""
        assert self._supervisor.stdin
        assert self._supervisor.stdout
        self._supervisor.stdin.close()
        try:
            self._supervisor.wait(timeout=_STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        finally:
            # The supervisor has done this already, unless somebody has killed it.
            supervisor.kill_all(self.run_id)
            supervisor.remove_cgroups(self._cgroups)
            shutil.rmtree(self.directory, ignore_errors=True)
            self._supervisor.stdout.close()
            self._exit_status = -signal.SIGKILL if self._exit_status is None else self._exit_status

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
