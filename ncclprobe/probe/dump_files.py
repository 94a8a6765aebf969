"""Where torch writes a rank's flight-recorder dump.

In: the environment a rank was started with. Out: the prefixes to which torch adds the global rank, most likely first.

TORCH_NCCL_DEBUG_INFO_TEMP_FILE, or since 2.8 TORCH_FR_DUMP_TEMP_FILE, sets it (ProcessGroupNCCL, HeartbeatMonitor);
else /tmp/nccl_trace_rank_ (to 2.6), then nccl_trace_rank_ (2.8) or comm_lib_trace_rank_ (2.9 and later) in
$HOME/.cache/torch, in $XDG_CACHE_HOME/torch where that is set (2.12).
"""

from collections.abc import Mapping

from ncclprobe.model.evidence import Kind
from ncclprobe.probe.source import Context

PREFIX_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
CLOCK_SLACK_NS = 2 * 10**9  # the start of a process is known to the second


def prefixes(environ: Mapping[str, str]) -> list[str]:
    """All places that some version of torch would use."""
    chosen = [environ[name] for name in PREFIX_VARIABLES if environ.get(name)]
    home = environ.get("HOME", "/root")
    caches = [cache for cache in (environ.get("XDG_CACHE_HOME"), f"{home}/.cache") if cache]
    names = ("comm_lib_trace_rank_", "nccl_trace_rank_")
    places = [*chosen, *(f"{cache}/torch/{name}" for cache in caches for name in names), "/tmp/nccl_trace_rank_"]  # noqa: S108
    return list(dict.fromkeys(places))


def asked_already(context: Context) -> set[int | None]:
    """Ranks that a source has asked for a dump and that gave one; a file that torch wrote by itself does not count."""
    recorders = (one.artifact for one in context.earlier if one.artifact.kind is Kind.FLIGHT_RECORDER)
    return {artifact.rank for artifact in recorders if artifact.pid is not None}
