"""A reproducer's job on this machine, while it runs.

In: its supervisor and its private directory. Out: `Job`: its pids, how it ended, how to end it.
"""

import select
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

from ncclprobe.model.errors import NcclprobeError
from ncclprobe.repro import supervisor
from ncclprobe.repro.job_logs import JobLogs
from ncclprobe.repro.watched_job import WatchedJob

_STOP_DEADLINE_S = 2 * supervisor.KILL_DEADLINE_S + 5.0


class Job(WatchedJob):
    """A job on this machine. `directory` holds its files; `launcher_pid` is torchrun's or what stands for srun."""

    logs: JobLogs

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
        super().__init__(JobLogs(directory), at_step=at_step, started=started)
        self.run_id = run_id
        self.name = name or run_id
        self.directory = directory
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
        """See `WatchedJob.pids`."""
        environments = supervisor.processes_of(self.run_id)
        numbered = {pid: int(environment["RANK"]) for pid, environment in environments.items() if "RANK" in environment}
        return {
            rank: pid
            for pid, rank in sorted(numbered.items(), key=lambda item: item[::-1])
            if supervisor.parent_of(pid) not in numbered
        }

    @property
    def processes(self) -> str:
        """See `WatchedJob.processes`."""
        ranks = (f"rank {rank}: {pid}" for rank, pid in self.pids.items())
        return ", ".join((f"launcher: {self.launcher_pid}", *ranks))

    @property
    def place_of_logs(self) -> str:
        """See `WatchedJob.place_of_logs`."""
        return str(self.directory)

    def _cpu_use(self) -> int:
        return supervisor.cpu_use_of(self.pids.values())

    def wait(self, timeout_s: float | None = None) -> int | None:
        """See `WatchedJob.wait`."""
        assert self._supervisor.stdout
        if self._exit_status is None and select.select([self._supervisor.stdout], [], [], timeout_s)[0]:
            # Nothing but the end of the stream: somebody has killed the supervisor.
            answer = self._supervisor.stdout.readline().strip()
            self._exit_status = int(answer or -signal.SIGKILL)
        return self._exit_status

    def stop(self) -> None:
        """See `WatchedJob.stop`."""
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
            supervisor.remove_files(str(self.directory), self.run_id)
            self._supervisor.stdout.close()
            self._exit_status = -signal.SIGKILL if self._exit_status is None else self._exit_status
