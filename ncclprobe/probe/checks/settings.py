"""What each rank was started with, as far as it decides what evidence the next hang leaves.

In: the ranks. Out: their settings, and a check named dump_pipe. Only variables of torch, NCCL and the launcher leave
the host.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from ncclprobe.model.checkup import Check, CheckState, Place, RankSettings, Version
from ncclprobe.model.evidence import Gap
from ncclprobe.model.job import JobProcess
from ncclprobe.probe import proc
from ncclprobe.probe.checkup import found
from ncclprobe.probe.dump_files import PREFIX_VARIABLES, prefixes
from ncclprobe.probe.inside import folder_inside, list_inside
from ncclprobe.probe.nccl_library import loaded_nccl
from ncclprobe.probe.source import Context, Disturbance, Found, Source
from ncclprobe.probe.torch_library import loaded_torch

_SENT = re.compile(
    r"(?:TORCH|NCCL|GLOO|PYTORCH)_\w+|TORCHELASTIC_(?:RUN_ID|MAX_RESTARTS)|CUDA_(?:LAUNCH_BLOCKING|DEVICE_ORDER)"
    r"|(?:LOCAL_)?(?:RANK|WORLD_SIZE)|MASTER_(?:ADDR|PORT)|SLURM_JOB_ID|HOME|XDG_CACHE_HOME|DEEPSPEED_TIMEOUT",
    re.ASCII,
)
_MAX_VARIABLES, _MAX_CHARACTERS = 1_000, 1_000
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_LAST_IN_TMP: Version = (2, 6, 99)


def collect(context: Context) -> Iterator[Found | Gap]:
    """Each rank, and one check of the pipes of all."""
    settings = [_of(process, context.host) for process in context.ranks]
    yield found("settings", _pipes(settings), settings)


def _of(process: JobProcess, host: str) -> RankSettings:
    environ = proc.environ(process.pid) or {}
    torch, nccl = loaded_torch(process.pid), loaded_nccl(process.pid)
    pipe = environ.get(_PIPE)
    return RankSettings(
        host=host,
        rank=process.rank,
        pid=process.pid,
        command=process.command,
        variables=_sent(environ),
        torch=torch,
        nccl=nccl.version if nccl else None,
        dumps=_place(process.pid, os.path.dirname(_prefix(environ, torch))),
        pipes=_place(process.pid, os.path.dirname(pipe)) if pipe else None,
    )


def _sent(environ: Mapping[str, str]) -> dict[str, str]:
    names = sorted(name for name in environ if _SENT.fullmatch(name))[:_MAX_VARIABLES]
    return {name: environ[name][:_MAX_CHARACTERS] for name in names}


def _prefix(environ: Mapping[str, str], torch: Version | None) -> str:
    """The one place that this version of torch will use."""
    places = prefixes(environ)
    is_old = torch is not None and torch <= _LAST_IN_TMP
    return places[-1] if is_old and not any(environ.get(name) for name in PREFIX_VARIABLES) else places[0]


def _place(pid: int, path: str) -> Place:
    try:
        with folder_inside(pid, path or ".") as folder:
            figures, device = os.fstatvfs(folder), os.fstat(folder).st_dev
            is_writable = os.access(".", os.W_OK | os.X_OK, dir_fd=folder, effective_ids=True)
    except OSError:
        return Place(path=path, is_there=False)
    return Place(
        path=path,
        is_there=True,
        is_writable=is_writable,
        file_system=_file_system(pid, device),
        free_bytes=figures.f_bavail * figures.f_frsize,
    )


def _file_system(pid: int, device: int) -> str | None:
    """By the number of its device: proc(5), mountinfo."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in (proc.read(pid, "mountinfo") or b"").decode("utf-8", "replace").splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2:3] == [number]:
            return after.split(" ")[0] or None
    return None


def _pipes(settings: Sequence[RankSettings]) -> Iterator[Check]:
    asked = [one for one in settings if one.variables.get(_PIPE) and one.rank is not None]
    missing = tuple(one.rank for one in asked if one.rank is not None and not _has_pipe(one))
    if not settings:
        return
    if not asked:
        what, action = "the ranks were started without a dump pipe", "start the next job with ncclprobe run"
        yield Check(name="dump_pipe", state=CheckState.ABSENT, what=what, action=action)
    elif missing:
        what = "torch has made no pipe: its recorder is off, its monitor does not run, or it uses no NCCL"
        yield Check(name="dump_pipe", state=CheckState.LIMITED, what=what, action="see the settings", ranks=missing)
    else:
        yield Check(name="dump_pipe", state=CheckState.OK, what=f"a pipe for each of {len(asked)} ranks")


def _has_pipe(one: RankSettings) -> bool:
    prefix = one.variables[_PIPE]
    try:
        return f"{os.path.basename(prefix)}{one.rank}.pipe" in list_inside(one.pid or 0, os.path.dirname(prefix) or ".")
    except OSError:
        return False


SOURCE = Source(name="settings", disturbs=Disturbance.NOTHING, collect=collect)
