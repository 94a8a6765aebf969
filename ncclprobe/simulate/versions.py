"""What each release of torch writes into a dump: the order of keys, and what is not there yet.

In: a version string as it stands in the dump (`list` for torch 2.2, which wrote none). Out: a `DumpVersion`.
"""

from dataclasses import dataclass

from ncclprobe.model.errors import UsageError

NEWEST = "2.10"

# Values that differ from entry to entry of one call; the rest is the same for all of them.
DYNAMIC = frozenset(
    {
        "record_id",
        "seq_id",
        "collective_seq_id",
        "p2p_seq_id",
        "op_id",
        "time_created_ns",
        "time_created_us",
        "time_discovered_completed_ns",
    }
)

_SIZES = ("input_sizes", "output_sizes")
_TYPED_SIZES = ("input_sizes", "input_dtypes", "output_sizes", "output_dtypes")
_ENDS = ("time_discovered_started_ns", "time_discovered_completed_ns", "retired")
_COUNTERS = ("collective_seq_id", "p2p_seq_id", "op_id", "profiling_name", "time_created_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpVersion:
    """`entry_keys` in the order torch writes them. `library_key` names NCCL's version, where it is written at all."""

    text: str
    entry_keys: tuple[str, ...]
    has_named_groups: bool = True
    has_status: bool = True
    has_types: bool = True
    has_json: bool = True
    library_key: str | None = None

    @property
    def is_list(self) -> bool:
        """Whether the dump is nothing but the list of entries."""
        return self.text == "list"


_2_1 = ("frames", "record_id", "pg_id", "process_group", *_COUNTERS, *_TYPED_SIZES, "state", *_ENDS)
_2_4 = (*_2_1, "timeout_ms", "is_p2p")
_2_9 = (*_2_4[:4], "thread_name", "thread_id", *_2_4[4:])
_ALL = (
    DumpVersion(
        text="list",
        entry_keys=("pg_id", "seq_id", "profiling_name", "time_created_us", *_SIZES, "state", "retired", "frames"),
        has_named_groups=False,
        has_status=False,
        has_types=False,
        has_json=False,
    ),
    DumpVersion(
        text="1.4",
        entry_keys=(
            *("frames", "record_id", "pg_id", "seq_id", "op_id", "profiling_name", "time_created_ns"),
            *(*_SIZES, "state", *_ENDS),
        ),
        has_named_groups=False,
        has_status=False,
        has_types=False,
        has_json=False,
    ),
    DumpVersion(text="2.1", entry_keys=(*_2_1, "is_p2p"), has_status=False, has_json=False),
    DumpVersion(text="2.4", entry_keys=_2_4),
    DumpVersion(text="2.9", entry_keys=_2_9, library_key="nccl_version"),
    DumpVersion(text="2.10", entry_keys=_2_9, library_key="comm_lib_version"),
)
VERSIONS = {version.text: version for version in _ALL}


def find_version(text: str) -> DumpVersion:
    """The version of that name; UsageError that lists them all otherwise."""
    if text not in VERSIONS:
        raise UsageError(f"no torch writes dumps of version {text!r}", f"choose one of: {', '.join(VERSIONS)}")
    return VERSIONS[text]
