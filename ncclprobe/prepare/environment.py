"""The environment that makes the next hang diagnosable.

In: the environment a command would be started with, and a directory for the job's dumps. Out: a `Plan`: what to set,
and what stays as it is because it is set already, by this name or by an older or newer one.

Left out on purpose: TORCH_NCCL_TRACE_CPP_STACK (each call records a C++ stack), TORCH_NCCL_ENABLE_TIMING and
TORCH_NCCL_DESYNC_DEBUG (more CUDA events, and known hangs of the watchdog), NCCL_DEBUG=INFO (a flood at thousands of
ranks), TORCH_DISTRIBUTED_DEBUG=DETAIL (checks every collective first).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

BUFFER_ENTRIES = "2000"
DUMP_NAME, PIPE_NAME = "nccl_trace_rank_", "pipe_rank_"
_JOB_VARIABLES = (
    ("SLURM_JOB_ID", "slurm"),
    ("PBS_JOBID", "pbs"),
    ("LSB_JOBID", "lsf"),
    ("TORCHELASTIC_RUN_ID", "run"),
)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One thing to set: under all its `names` (torch has renamed some), unless any of `names` or `aliases` is set."""

    names: tuple[str, ...]
    value: str
    why: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A setting that is left alone: `name` and `value` are what the environment has already."""

    setting: Setting
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to add to the environment, and what is there already. `directory` must exist before a rank starts."""

    directory: str
    added: tuple[Setting, ...]
    kept: tuple[Kept, ...]

    @property
    def variables(self) -> dict[str, str]:
        """Name -> value of what is added."""
        return {name: setting.value for setting in self.added for name in setting.names}

    @property
    def needs_directory(self) -> bool:
        """Whether anything that is added names the directory."""
        return any(value.startswith(f"{self.directory}/") for value in self.variables.values())


def make_plan(environ: Mapping[str, str], directory: str) -> Plan:
    """`directory` is absolute; a variable that is set to nothing counts as set."""
    settings = settings_for(directory)
    kept = [found for setting in settings for found in _kept(setting, environ)]
    there = [found.setting for found in kept]
    added = [setting for setting in settings if setting not in there]
    return Plan(directory=directory, added=tuple(added), kept=tuple(kept))


def settings_for(directory: str) -> tuple[Setting, ...]:
    """Everything that `ncclprobe run` would set in an empty environment."""
    return (
        Setting(
            # Up to 2.10 the pipe looks at the old name only, and since 2.8 the new one goes first: so both.
            names=("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
            value=BUFFER_ENTRIES,
            why="the flight recorder keeps so many entries per process; it is off up to torch 2.10 otherwise",
        ),
        Setting(
            names=("TORCH_NCCL_DUMP_ON_TIMEOUT",),
            aliases=("TORCH_FR_DUMP_ON_TIMEOUT",),
            value="1",
            why="each rank writes its recorder when a collective times out; off up to torch 2.7 otherwise",
        ),
        Setting(
            names=("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
            value=f"{directory}/{DUMP_NAME}",
            why="dumps of this job alone, one file per rank; else two jobs of a home directory overwrite each other's",
        ),
        Setting(
            names=("TORCH_NCCL_DEBUG_INFO_PIPE_FILE",),
            value=f"{directory}/{PIPE_NAME}",
            why="a pipe per rank, through which a dump can be had while the job hangs",
        ),
        Setting(names=("NCCL_DEBUG",), value="WARN", why="NCCL's warnings, and its version; INFO says more and much"),
        Setting(
            names=("NCCL_DEBUG_TIMESTAMP_LEVELS",),
            value="WARN,INFO",
            why="the time before NCCL's lines, from NCCL 2.26 on",
        ),
    )


def job_name(environ: Mapping[str, str], time_text: str, pid: int) -> str:
    """A name for the job's directory: the scheduler's or torchrun's id, else the time and the pid."""
    for variable, prefix in _JOB_VARIABLES:
        value = environ.get(variable, "")
        if value and value != "none":
            step = environ.get("SLURM_STEP_ID", "") if prefix == "slurm" else ""
            return f"{prefix}-{_UNSAFE.sub('-', value)[:64]}" + (f".{step}" if step.isdigit() else "")
    return f"{time_text}-{pid}"


def _kept(setting: Setting, environ: Mapping[str, str]) -> Iterator[Kept]:
    for name in (*setting.names, *setting.aliases):
        if name in environ:
            yield Kept(setting=setting, name=name, value=environ[name])
