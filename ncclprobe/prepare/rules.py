"""The rules for the settings of one rank.

In: `RankSettings`. Out: `RULES`, each with what it looks for, what to do, and of which versions it is true.

The facts are those of torch's ProcessGroupNCCL, HeartbeatMonitor and FlightRecorder, 2.2 to 2.15, and of NCCL.
"""

from ncclprobe.model.checkup import Level, RankSettings
from ncclprobe.prepare.lint import Rule
from ncclprobe.prepare.values import (
    BUFFER,
    DUMP,
    PIPE,
    collective_timeout_s,
    is_before,
    is_off,
    is_on,
    value,
    whole,
)

_MANY_ENTRIES, _FEW_ENTRIES, _LEAST_POWER = 200_000, 100, 1 << 16
_RENAMED = {
    "NCCL_ASYNC_ERROR_HANDLING": "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
    "NCCL_DESYNC_DEBUG": "TORCH_NCCL_DESYNC_DEBUG",
    "NCCL_ENABLE_TIMING": "TORCH_NCCL_ENABLE_TIMING",
    "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
}
_SHARED_FILE_SYSTEMS = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse.", "wekafs", "9p", "virtiofs", "cifs")
_LOST_FILE_SYSTEMS = ("tmpfs", "overlay")


def _buffer_off(one: RankSettings) -> str | None:
    found = whole(one, *BUFFER)
    if found is not None and found[1] <= 0:
        return f"{found[0]}={found[1]} switches the flight recorder off"
    if value(one, *BUFFER) is None and is_before(one, (2, 11, 0)):
        return f"the flight recorder is off: {BUFFER[1]} is not set, and its default is 0 up to torch 2.10"
    if value(one, BUFFER[1]) is None and value(one, BUFFER[0]) is not None and is_before(one, (2, 8, 0)):
        return f"the flight recorder is off: only {BUFFER[0]} is set, which torch before 2.8 does not know"
    return None


def _buffer_is_no_number(one: RankSettings) -> str | None:
    found = value(one, *BUFFER)
    if found is None or whole(one, *BUFFER) is not None:
        return None
    return f"{found[0]}={found[1]!r} is not a number: torch refuses to start with it"


def _buffer_in_bytes(one: RankSettings) -> str | None:
    found = whole(one, *BUFFER)
    if found is None:
        return None
    name, entries = found
    is_power = entries >= _LEAST_POWER and entries & (entries - 1) == 0
    if entries <= _MANY_ENTRIES and not is_power:
        return None
    return f"{name}={entries} counts entries, not bytes: each takes about a kilobyte in each process, and in its dump"


def _buffer_small(one: RankSettings) -> str | None:
    found = whole(one, *BUFFER)
    if found is None or not 0 < found[1] < _FEW_ENTRIES:
        return None
    return f"{found[0]}={found[1]} keeps so few calls that a rank that is ahead has forgotten where the others are"


def _buffer_twice(one: RankSettings) -> str | None:
    new, old = value(one, BUFFER[0]), value(one, BUFFER[1])
    if new is None or old is None or new[1] == old[1]:
        return None
    return f"{new[0]}={new[1]} and {old[0]}={old[1]} differ: from torch 2.8 on the first counts, before it the second"


def _pipe_needs_old_name(one: RankSettings) -> str | None:
    if not value(one, PIPE) or value(one, BUFFER[1]) is not None or not is_before(one, (2, 11, 0)):
        return None
    return f"there is no dump pipe: up to torch 2.10 it needs {BUFFER[1]}, whatever {BUFFER[0]} says"


def _folder_missing(one: RankSettings) -> str | None:
    if one.pipes is not None and not one.pipes.is_there:
        return (
            f"{one.pipes.path}, where the dump pipe goes, does not exist: torch ends a rank that cannot make its pipe"
        )
    is_chosen = value(one, *DUMP) is not None
    if is_chosen and one.dumps is not None and not one.dumps.is_there:
        return f"{one.dumps.path}, where dumps go, does not exist: torch makes no directory, and the dump is lost"
    return None


def _folder_closed(one: RankSettings) -> str | None:
    place = one.dumps
    if place is None or not place.is_there:
        return None
    if not place.is_writable:
        return f"{place.path}, where dumps go, may not be written to by the rank"
    if place.free_bytes is not None and place.free_bytes < 64 << 20:
        return f"{place.path}, where dumps go, has {place.free_bytes >> 20} MiB left"
    return None


def _dumps_shared(one: RankSettings) -> str | None:
    place = one.dumps
    if place is None or place.file_system is None or not place.file_system.startswith(_SHARED_FILE_SYSTEMS):
        return None
    prefix = value(one, *DUMP)
    names = [one.variables.get(name) for name in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID")]
    if prefix is not None and any(name and name in prefix[1] for name in names):
        return None
    return f"dumps go to {place.path} ({place.file_system}), which hosts share: two jobs overwrite each other's"


def _dumps_lost(one: RankSettings) -> str | None:
    place = one.dumps
    if place is None or place.file_system not in _LOST_FILE_SYSTEMS:
        return None
    return f"dumps go to {place.path} ({place.file_system}): they are gone when the container or the host is"


def _dump_on_timeout_off(one: RankSettings) -> str | None:
    name = is_off(one, "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_ON_TIMEOUT")
    if name is not None:
        return f"{name} is 0: no rank writes its recorder when a collective times out, and pipes are read every 8 min"
    is_detail = one.variables.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL"
    if is_before(one, (2, 8, 0)) and not is_detail and value(one, "TORCH_NCCL_DUMP_ON_TIMEOUT") is None:
        return "TORCH_NCCL_DUMP_ON_TIMEOUT is not set, and off by default up to torch 2.7: a time-out leaves no dump"
    return None


def _blocking_wait(one: RankSettings) -> str | None:
    name = is_on(one, "TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
    return None if name is None else f"{name}=1: no watchdog runs, so there is no dump and no pipe"


def _no_error_handling(one: RankSettings) -> str | None:
    name = is_off(one, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
    return (
        None if name is None else f"{name}=0: no rank is ended by a time-out, so the job hangs until somebody sees it"
    )


def _no_monitor(one: RankSettings) -> str | None:
    name = is_off(one, "TORCH_NCCL_ENABLE_MONITORING")
    if name is None:
        return None
    return f"{name}=0: no rank whose watchdog is stuck is ended, and older versions write no dump for other ranks"


def _renamed(one: RankSettings) -> str | None:
    found = [(old, new) for old, new in _RENAMED.items() if old in one.variables]
    if not found:
        return None
    if is_before(one, (2, 2, 0)):
        return None
    names = ", ".join(f"{old} (now {new})" for old, new in found)
    return f"old names, which torch from 2.2 on still reads but warns of: {names}"


def _too_new_names(one: RankSettings) -> str | None:
    found = [new for old, new in _RENAMED.items() if new in one.variables and old not in one.variables]
    if not found or not is_before(one, (2, 2, 0)):
        return None
    return f"torch before 2.2 does not know {', '.join(found)}: there the names begin with NCCL_"


def _nccl_timeout(one: RankSettings) -> str | None:
    if "NCCL_TIMEOUT" not in one.variables:
        return None
    return "NCCL_TIMEOUT does nothing: neither NCCL nor torch reads it"


def _heartbeat_short(one: RankSettings) -> str | None:
    found = whole(one, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC")
    timeout_s, whose = collective_timeout_s(one)
    if found is None or found[1] >= timeout_s:
        return None
    return (
        f"{found[0]}={found[1]} is shorter than the time-out of collectives ({timeout_s} s, {whose}): a rank may be "
        "ended as stuck before its collective times out"
    )


def _debug_file_shared(one: RankSettings) -> str | None:
    name = one.variables.get("NCCL_DEBUG_FILE")
    if not name or name.startswith("/dev/") or "%p" in name.replace("%%", ""):
        return None
    return f"NCCL_DEBUG_FILE={name} has no %p: the ranks of a host overwrite each other's log"


def _debug_file_empty(one: RankSettings) -> str | None:
    if "NCCL_DEBUG_FILE" not in one.variables or one.variables.get("NCCL_DEBUG"):
        return None
    return "NCCL_DEBUG_FILE is set and NCCL_DEBUG is not: nothing is written to it"


def _launch_blocking(one: RankSettings) -> str | None:
    name = is_on(one, "CUDA_LAUNCH_BLOCKING")
    if name is None:
        return None
    return "CUDA_LAUNCH_BLOCKING=1: each kernel is waited for, which slows the job and can make a hang of its own"


def _detail(one: RankSettings) -> str | None:
    if one.variables.get("TORCH_DISTRIBUTED_DEBUG") != "DETAIL":
        return None
    return "TORCH_DISTRIBUTED_DEBUG=DETAIL: every collective is first compared over gloo, which slows the job"


def _not_prepared(one: RankSettings) -> str | None:
    if value(one, PIPE) is not None:
        return None
    return f"{PIPE} is not set: while the job hangs, no dump can be had without --live-dump"


_PREPARE = "start it with ncclprobe run, or set TORCH_NCCL_TRACE_BUFFER_SIZE and TORCH_FR_BUFFER_SIZE to 2000"
_FOLDER = "make the directory on every host before the job starts; ncclprobe run does"
_UNSET = "leave it out"
_P, _N = Level.PROBLEM, Level.NOTE

RULES: tuple[Rule, ...] = (
    Rule(name="recorder-off", level=_P, find=_buffer_off, action=_PREPARE, applies="torch 2.2 and later"),
    Rule(name="buffer-no-number", level=_P, find=_buffer_is_no_number, action=_PREPARE, applies="torch 2.2 and later"),
    Rule(name="buffer-in-bytes", level=_N, find=_buffer_in_bytes, action=_PREPARE, applies="torch 2.2 and later"),
    Rule(name="buffer-small", level=_N, find=_buffer_small, action=_PREPARE, applies="torch 2.2 and later"),
    Rule(name="buffer-twice", level=_N, find=_buffer_twice, action="give both the same value", applies="torch 2.8+"),
    Rule(name="pipe-needs-old-name", level=_P, find=_pipe_needs_old_name, action=_PREPARE, applies="torch 2.8 to 2.10"),
    Rule(name="folder-missing", level=_P, find=_folder_missing, action=_FOLDER, applies="torch 2.2 and later"),
    Rule(
        name="folder-closed",
        level=_P,
        find=_folder_closed,
        action="choose another place with ncclprobe run --dir",
        applies="torch 2.2 and later",
    ),
    Rule(
        name="dumps-shared",
        level=_N,
        find=_dumps_shared,
        action="put the job's id into TORCH_NCCL_DEBUG_INFO_TEMP_FILE, as ncclprobe run does",
        applies="torch 2.2 and later",
    ),
    Rule(
        name="dumps-lost",
        level=_N,
        find=_dumps_lost,
        action="collect before the job ends, or give ncclprobe run --dir a place that stays",
        applies="torch 2.2 and later",
    ),
    Rule(
        name="dump-on-timeout-off",
        level=_P,
        find=_dump_on_timeout_off,
        action="set TORCH_NCCL_DUMP_ON_TIMEOUT to 1, as ncclprobe run does",
        applies="torch 2.2 and later",
    ),
    Rule(name="blocking-wait", level=_P, find=_blocking_wait, action=_UNSET, applies="torch 1.13 and later"),
    Rule(name="no-error-handling", level=_P, find=_no_error_handling, action=_UNSET, applies="torch 1.13 and later"),
    Rule(name="no-monitor", level=_P, find=_no_monitor, action=_UNSET, applies="torch 2.2 and later"),
    Rule(name="renamed", level=_N, find=_renamed, action="use the new names", applies="torch 2.2 and later"),
    Rule(name="too-new-names", level=_P, find=_too_new_names, action="use the old names", applies="before torch 2.2"),
    Rule(
        name="nccl-timeout",
        level=_N,
        find=_nccl_timeout,
        action="give init_process_group and new_group a timeout=",
        applies="all versions",
    ),
    Rule(
        name="heartbeat-short",
        level=_N,
        find=_heartbeat_short,
        action="leave it out, or make it longer than the time-out of collectives",
        applies="torch 2.2 and later",
    ),
    Rule(
        name="debug-file-shared",
        level=_P,
        find=_debug_file_shared,
        action="name it like nccl.%h.%p.log",
        applies="all versions of NCCL",
    ),
    Rule(
        name="debug-file-empty",
        level=_N,
        find=_debug_file_empty,
        action="set NCCL_DEBUG too: WARN or INFO",
        applies="all versions of NCCL",
    ),
    Rule(name="launch-blocking", level=_N, find=_launch_blocking, action=_UNSET, applies="all versions of CUDA"),
    Rule(name="detail", level=_N, find=_detail, action="leave it out once the bug is found", applies="torch 1.9+"),
    Rule(
        name="no-pipe",
        level=_N,
        find=_not_prepared,
        action="start the next job with ncclprobe run",
        applies="torch 2.3 and later",
    ),
)
