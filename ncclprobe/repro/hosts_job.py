"""A reproducer's job over hosts, while it runs.

In: the supervisors on its hosts. Out: `HostsJob`: the pids of its ranks, how it ended, how to end it. Nothing of it is
kept in files here, so a command that is killed leaves none; its connections end with it, and so do the supervisors.
"""

import signal
import threading
from collections.abc import Mapping, Sequence

from ncclprobe.model.errors import NcclprobeError
from ncclprobe.repro.job_logs import LAUNCHER_LOG, TAIL_BYTES, Logs
from ncclprobe.repro.remote_supervisor import Output, RemoteSupervisor
from ncclprobe.repro.watched_job import WatchedJob

_START_S = 60.0
_STOP_DEADLINE_S = 10.0


class HostsLogs(Logs):
    """What the ranks on all hosts have printed; of much, the end."""

    def __init__(self, supervisors: Sequence[RemoteSupervisor], files: Mapping[int, str]) -> None:
        self._launchers = {supervisor.host: supervisor.outputs[LAUNCHER_LOG] for supervisor in supervisors}
        outputs = {name: output for supervisor in supervisors for name, output in supervisor.outputs.items()}
        self._files = files
        self._ranks: dict[int, Output] = {rank: outputs[name] for rank, name in files.items()}

    def sizes(self) -> dict[str, int]:
        """See `Logs.sizes`."""
        return {self._files[rank]: output.size_bytes for rank, output in self._ranks.items()}

    def files(self) -> dict[str, bytes]:
        """See `Logs.files`."""
        ranks = {self._files[rank]: output.tail.encode() for rank, output in self._ranks.items()}
        launchers = {f"{host}-{LAUNCHER_LOG}": output.tail.encode() for host, output in self._launchers.items()}
        return {name: data for name, data in {**ranks, **launchers}.items() if data}

    def _tails(self, stream: str) -> dict[int, str]:
        return {rank: output.tail[-TAIL_BYTES:] for rank, output in self._ranks.items()}

    def _launcher_tail(self) -> str:
        return "\n".join(output.tail[-TAIL_BYTES:] for output in self._launchers.values())


class HostsJob(WatchedJob):
    """A job over hosts. `files`: rank -> its output file, of the ranks that are started."""

    def __init__(
        self,
        supervisors: Sequence[RemoteSupervisor],
        changed: threading.Condition,
        files: Mapping[int, str],
        *,
        run_id: str,
        name: str,
        at_step: int,
        started: int,
    ) -> None:
        super().__init__(HostsLogs(supervisors, files), at_step=at_step, started=started)
        self.run_id = run_id
        self.name = name
        self._supervisors = tuple(supervisors)
        self._changed = changed
        try:
            self._wait_for_launchers()
        except BaseException:
            self.stop()
            raise

    def _wait_for_launchers(self) -> None:
        """NcclprobeError names a host where none comes up."""
        with self._changed:
            self._changed.wait_for(lambda: all(one.has_started or one.is_over for one in self._supervisors), _START_S)
            for one in self._supervisors:
                if not one.has_started:
                    raise one.loss or NcclprobeError(
                        f"the job could not be started on {one.host}: {one.failure or 'it does not answer'}",
                        "check that its directory for temporary files has room",
                    )

    @property
    def pids(self) -> dict[int, int]:
        """See `WatchedJob.pids`; each is its own host's."""
        return dict(sorted(pair for one in self._supervisors if not one.is_over for pair in one.ranks.items()))

    @property
    def processes(self) -> str:
        """See `WatchedJob.processes`."""
        return "; ".join(
            f"{one.host}: {', '.join(f'rank {rank}: {pid}' for rank, pid in sorted(one.ranks.items())) or 'no rank'}"
            for one in self._supervisors
        )

    @property
    def place_of_logs(self) -> str:
        """See `WatchedJob.place_of_logs`."""
        return f"ncclprobe-{self.run_id}-N below the directory for temporary files of each host"

    def wait(self, timeout_s: float | None = None) -> int | None:
        """See `WatchedJob.wait`; the highest of all hosts. NcclprobeError when a host is lost."""
        with self._changed:
            self._changed.wait_for(self._is_over, timeout_s)
            loss = next((one.loss for one in self._supervisors if one.loss), None)
            statuses = [one.exit_status for one in self._supervisors if one.exit_status is not None]
        if loss is not None:
            raise loss
        return max(statuses, key=abs) if len(statuses) == len(self._supervisors) else None

    def stop(self) -> None:
        """See `WatchedJob.stop`."""
        threads = [threading.Thread(target=one.close, daemon=True) for one in self._supervisors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_STOP_DEADLINE_S)
        with self._changed:
            for one in self._supervisors:
                one.exit_status = -signal.SIGKILL if one.exit_status is None else one.exit_status

    def _is_over(self) -> bool:
        return any(one.loss for one in self._supervisors) or all(one.is_over for one in self._supervisors)

    def _cpu_use(self) -> int:
        return sum(one.cpu_use for one in self._supervisors)
