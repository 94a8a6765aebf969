"""Start a reproducer's job on this machine.

In: a `Repro` and options. Out: a `Job` of real processes, each rank's output in files of a private temporary directory.
torch is never imported here: only the job needs it.
"""

import json
import os
import subprocess
import sys
import tempfile
import uuid
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from ncclprobe.model.errors import NcclprobeError, UsageError
from ncclprobe.repro import memory_cgroup, needs, plain_job, supervisor
from ncclprobe.repro.job import Job
from ncclprobe.repro.job_logs import LAUNCHER_LOG
from ncclprobe.repro.reproducer import DEFAULT_STEP, JobState, Launcher, Repro

# What ties a process to the job or the Slurm step its shell may belong to, or turns a hang into an error.
_FOREIGN_PREFIXES = ("PET_", "TORCHELASTIC_", "SLURM_", "OMPI_", "PMI_", "PMIX_")
_FOREIGN_NAMES = {
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("PYTHON_EXEC", "TORCH_DISTRIBUTED_DEBUG"),
}
_ENDLESS_STEPS = 1_000_000  # a job that is looked at while it runs must not end before


def launch(repro: Repro, *, ranks: int, at_step: int = DEFAULT_STEP, fixed: bool = False, backend: str = "auto") -> Job:
    """Start `repro` on `ranks` ranks of this machine; it hangs at `at_step`, or runs to its end if `fixed`.

    `backend` is auto, gloo or nccl. Raises UsageError for a request that makes no sense or that this machine cannot
    fulfil, NcclprobeError without torch.
    """
    _check(repro, ranks, at_step)
    run_id = f"{repro.name}-{uuid.uuid4().hex[:12]}"
    directory = Path(tempfile.gettempdir()).resolve() / f"ncclprobe-{run_id}"
    program = [str(directory / repro.path.name), *options(repro, at_step, fixed=fixed, backend=backend)]
    cgroups = _cgroups(repro, run_id)
    name = run_id
    if repro.launcher is Launcher.PLAIN:
        plan = plain_job.plan(repro, program, ranks=ranks, at_step=at_step, fixed=fixed, cgroups=cgroups)
        argv, name = plan.argv, plan.name
    else:
        argv = [*_torchrun(run_id, directory, ranks), *program]
    request = supervisor.Request(
        directory=str(directory),
        files={repro.path.name: repro.path.read_text(encoding="utf-8")},
        argv=argv,
        token=run_id,
        log=LAUNCHER_LOG,
        cgroups=cgroups,
        follow=[],
    )
    started = started_ranks(repro, ranks, fixed=fixed)
    return Job(_supervise(request), directory, run_id, at_step, name=name, started=started, cgroups=cgroups)


def started_ranks(repro: Repro, ranks: int, *, fixed: bool) -> int:
    """How many ranks stand in their set-up when the job hangs; 0 if it comes to its steps."""
    return ranks - len(repro.harm.absent_ranks) if repro.is_at_start and not fixed else 0


def _supervise(request: supervisor.Request) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", supervisor.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,  # `select` must see all that has not been read
        env=_environment(),
        start_new_session=True,  # Ctrl-C is for the asker, who tells by closing the pipe
    )
    assert process.stdin
    with suppress(BrokenPipeError):  # it died at once: `Job` says so
        process.stdin.write(json.dumps(request).encode() + b"\n")
    return process


def _check(repro: Repro, ranks: int, at_step: int) -> None:
    check_sense(repro, ranks, at_step)
    if find_spec("torch") is None:
        raise NcclprobeError("the reproducers need torch, which is not installed", "pip install 'ncclprobe[repro]'")
    missing = needs.missing(repro)
    if missing is not None:
        raise UsageError(*missing)


def check_sense(repro: Repro, ranks: int, at_step: int) -> None:
    """UsageError for a request that makes no sense on any machine."""
    if ranks < repro.min_ranks:
        raise UsageError(f"{repro.name} cannot hang on {ranks} rank(s)", f"ask for --ranks {repro.min_ranks} or more")
    if at_step < 1:
        raise UsageError(f"there is no step {at_step}", "ask for --at-step 1 or later")


def options(repro: Repro, at_step: int, *, fixed: bool, backend: str) -> list[str]:
    """The arguments of the program."""
    given = [f"--at-step={at_step}", f"--backend={backend}"]
    if fixed:
        return [*given, "--fixed"]
    return [*given, f"--steps={_ENDLESS_STEPS}"] if repro.state is JobState.RUNNING else given


def _cgroups(repro: Repro, run_id: str) -> memory_cgroup.Cgroups:
    if not repro.memory_mib:
        return {}
    memory_cgroup.remove_stale()
    plans = (memory_cgroup.plan(run_id, rank, limit) for rank, limit in repro.memory_mib.items())
    return {path: files for plan in plans for path, files in plan.items()}


def _torchrun(run_id: str, directory: Path, ranks: int) -> list[str]:
    """How to call torchrun for this machine alone: no name is looked up, and the port is whatever the system gives."""
    return [
        *[sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--rdzv-id={run_id}"],
        *["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--rdzv-conf=is_host=1", "--local-addr=127.0.0.1"],
        *[f"--log-dir={directory / 'logs'}", "--redirects=3"],
    ]


def own_environment() -> dict[str, str]:
    """The environment of this process without what belongs to another job."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _FOREIGN_NAMES and not name.startswith(_FOREIGN_PREFIXES)
    }


def _environment() -> dict[str, str]:
    """The environment of a job on this machine: all its traffic stays on the loopback."""
    return {"OMP_NUM_THREADS": "1", **own_environment(), "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
