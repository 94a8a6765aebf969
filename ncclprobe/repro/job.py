"""A reproducer's job while it runs.

In: its supervisor and its private directory. Out: `Job`: its pids, whether it is stuck, how it ended, how to end it.
"""

import select
import shutil
import signal
import subprocess
import time
from enum import Enum
from pathlib import Path
from types import TracebackType

from ncclprobe.model.errors import NcclprobeError
from ncclprobe.repro import supervisor
from ncclprobe.repro.job_logs import JobLogs

_QUIET_S = 1.5
_POLL_S = 0.05
_STOP_DEADLINE_S = 2 * supervisor.KILL_DEADLINE_S + 5.0


class JobState(str, Enum):
    """What a job was found to be doing. RUNNING: it still makes progress, or has not come to the planted step yet."""

    STUCK = "stuck"
    ENDED = "ended"
    RUNNING = "running"

    __str__ = str.__str__


class Job:
    """A running job. Use it in a `with` statement: leaving that stops it. Its files are there until then."""

    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path, run_id: str, at_step: int) -> None:
        self.run_id = run_id
        self.directory = directory
        self.logs = JobLogs(directory)
        self._at_step = at_step
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
        processes = supervisor.processes_of(self.run_id)
        ranks = {
            int(environment["RANK"]): pid
            for pid, environment in processes.items()
            if "RANK" in environment and supervisor.parent_of(pid) == self.launcher_pid
        }
        return dict(sorted(ranks.items()))

    def wait_until_stuck(self, timeout_s: float) -> JobState:
        """Return as soon as the job has ended, or is past the planted step and no rank prints any more."""
        deadline = time.monotonic() + timeout_s
        seen, quiet_since = self.logs.sizes(), time.monotonic()
        while self.wait(timeout_s=_POLL_S) is None:
            now, sizes = time.monotonic(), self.logs.sizes()
            if sizes != seen:
                seen, quiet_since = sizes, now
            elif now - quiet_since >= _QUIET_S and self._has_come_to_step():
                return JobState.STUCK
            if now >= deadline:
                return JobState.RUNNING
        return JobState.ENDED

    def _has_come_to_step(self) -> bool:
        # The planted step itself may never be printed, so the one before it will do; but silence at the start will not.
        return max(self.logs.steps().values(), default=0) >= max(1, self._at_step - 1)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit status of torchrun (negative: a signal killed it), or None if it still runs after `timeout_s`."""
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
            shutil.rmtree(self.directory, ignore_errors=True)
            self._supervisor.stdout.close()
            self._exit_status = -signal.SIGKILL if self._exit_status is None else self._exit_status

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
