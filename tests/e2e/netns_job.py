"""A torchrun job over real hosts.

In: hosts and a program. Out: a `Job`, with the logs of each host, that can be stopped for good.
"""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.netns_commands import start, wait_until
from tests.e2e.netns_host import NIC, RealHost


@dataclass(kw_only=True)
class Job:
    """A torchrun job over all hosts. Each launcher and its ranks write to a log of their host."""

    hosts: Sequence[RealHost]
    mark: str
    launchers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)

    def log(self) -> str:
        """What all hosts have logged so far."""
        return "".join(path.read_text(errors="replace") for path in self.logs)

    def wait_for(self, text: str, count: int = 1, timeout_s: float = 90) -> None:
        """Until the logs hold a text `count` times; AssertionError with the logs' end if it does not come."""
        end = time.monotonic() + timeout_s
        while self.log().count(text) < count:
            is_over = all(launcher.poll() is not None for launcher in self.launchers)
            if (is_over and self.log().count(text) < count) or time.monotonic() > end:
                raise AssertionError(f"{text!r} was not logged {count} times by the job:\n{self.log()[-3000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Kills every process of the job on every host, and waits until they are gone."""
        for host in self.hosts:
            wait_until(lambda host=host: not self._kill(host), f"job ended on {host.name}")
        for launcher in self.launchers:
            launcher.wait(10)

    def _kill(self, host: RealHost) -> list[int]:
        pids = host.pids_with(self.mark)
        if pids:
            host.run(f"kill -KILL {' '.join(map(str, pids))}")
        return pids


def start_job(
    hosts: Sequence[RealHost], shared: Path, mark: str, command: Sequence[str], *, nproc: int, env: dict[str, str]
) -> Job:
    """Starts torchrun with options, program and arguments on each host. `mark` is in the environment of all of it."""
    job = Job(hosts=hosts, mark=mark)
    variables = {**os.environ, "GLOO_SOCKET_IFNAME": NIC, "OMP_NUM_THREADS": "1", "NCCLPROBE_TEST_JOB": mark, **env}
    for index, host in enumerate(hosts):
        launcher = [
            *(sys.executable, "-m", "torch.distributed.run"),
            *(f"--nnodes={len(hosts)}", f"--nproc-per-node={nproc}"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint={hosts[0].address}:29400", f"--rdzv-id={mark}"),
            *(f"--rdzv-conf=is_host={int(index == 0)}", f"--local-addr={host.address}"),
            f"--log-dir={shared}/{mark}-{host.name}",  # else it makes a folder in the host's /tmp
            *command,
        ]
        job.logs.append(shared / f"{mark}-{host.name}.log")
        with job.logs[-1].open("wb") as output:
            job.launchers.append(start([*host.enter(), *_in_folder(shared, launcher)], output, variables))
    return job


def _in_folder(folder: Path, command: Sequence[str]) -> list[str]:
    return ["/bin/sh", "-c", f'cd {shlex.quote(str(folder))} && exec "$@"', "sh", *command]
