"""What a process's environment says of its place in a job.

In: the environment it was started with. Out: its rank, its local rank, the size of the job, and the job's name.

torchrun and most launchers set RANK; srun, mpirun and hydra set variables of their own, which other programs under them
inherit too. An explicit RANK therefore goes first, and then the scheduler's other numbers are not mixed with it.
"""

from collections.abc import Iterable, Mapping

from ncclprobe.model.job import JobKey

RANK = ("RANK",)
SCHEDULER_RANK = ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
_SCHEDULER_LOCAL_RANK = ("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_SCHEDULER_WORLD_SIZE = (
    *("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"),
)
_MAX_DIGITS = 8

Environ = Mapping[str, str]


def explicit_rank(environ: Environ) -> int | None:
    """RANK, as torchrun and its like set it."""
    return number(environ, RANK)


def rank(environ: Environ) -> int | None:
    """RANK, else the scheduler's number."""
    found = explicit_rank(environ)
    return number(environ, SCHEDULER_RANK) if found is None else found


def local_rank(environ: Environ) -> int | None:
    """The number inside the host."""
    found = number(environ, ("LOCAL_RANK",))
    return found if found is not None or _is_explicit(environ) else number(environ, _SCHEDULER_LOCAL_RANK)


def world_size(environ: Environ) -> int | None:
    """How many ranks the job has."""
    found = number(environ, ("WORLD_SIZE",))
    return found if found is not None or _is_explicit(environ) else number(environ, _SCHEDULER_WORLD_SIZE)


def local_world_size(environ: Environ) -> int | None:
    """How many ranks of the job this host has."""
    return number(environ, ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"))


def job(environ: Environ) -> JobKey:
    """The job's name. A Slurm step is told from the others of its allocation only when nothing else tells them."""
    run_id = environ.get("TORCHELASTIC_RUN_ID", "")
    run_id = "" if run_id == "none" else run_id  # torchrun's word for "not given"
    address, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    master = f"{address}:{port}" if address else ""
    is_named = bool(run_id or master)
    return JobKey(run_id=run_id, master=master, scheduler_id=_scheduler_id(environ, with_step=not is_named))


def restart_count(environ: Environ) -> int:
    """How often torchrun has started its workers anew."""
    return number(environ, ("TORCHELASTIC_RESTART_COUNT",)) or 0


def allocation(environ: Environ) -> str:
    """What the scheduler calls the whole allocation; empty without one."""
    return _scheduler_id(environ, with_step=False)


def number(environ: Environ, names: Iterable[str]) -> int | None:
    """The first of the variables that holds a whole number."""
    for name in names:
        value = environ.get(name, "")
        if value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS:
            return int(value)
    return None


def _is_explicit(environ: Environ) -> bool:
    return explicit_rank(environ) is not None


def _scheduler_id(environ: Environ, *, with_step: bool) -> str:
    slurm = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    if not slurm:
        return environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid") or ""
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID")
    return f"slurm:{slurm}.{step}" if step and with_step else f"slurm:{slurm}"
