"""What lines of text logs tell of a job: torch's and NCCL's own, launchers', schedulers', and the program's.

In: nothing. Out: `LogEvent`, one line with one fact; the facts, one class each; `Speaker`, `OpTrace`.
"""

from array import array
from dataclasses import dataclass, field
from enum import Enum

from ncclprobe.model.collectives import Signature
from ncclprobe.model.frames import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGroup:
    """A process group as a prefix names it: `[PG ID 2 PG GUID 9(mesh_tp) Rank 1]`, `[PG 0 (default_pg) Rank 3]`.

    `name` is the GUID, the same in all members (torch 2.5 and later); before, a number that each process counts by
    itself: `is_own_count`. `group_rank` is the speaker's rank inside the group.
    """

    name: str
    description: str = ""
    group_rank: int
    is_own_count: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTimeout:
    """The watchdog gave up a collective. `op` as the recorder names it (`all_reduce`); numels None if not printed."""

    seq: int
    op: str
    numel_in: int | None
    numel_out: int | None
    timeout_ms: int | None
    ran_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """A group's counters as a rank printed them; None is "none yet" (-1) or not printed. `failed`: the work meant."""

    last_enqueued: int | None
    last_completed: int | None
    last_started: int | None = None
    failed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupJoined:
    """The speaker became a member of a process group of `size` ranks."""

    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSignal:
    """The rank was told to dump: by itself (`from_rank` None) or by another, which is who timed out first."""

    from_rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpWritten:
    """A flight-recorder dump was written, or a directory listing shows it. `rank` from the file's name."""

    path: str
    rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogStuck:
    """The heartbeat monitor saw the watchdog itself make no progress, for `seconds`: the rank hangs in CUDA or NCCL."""

    seconds: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GilStuck:
    """Another thread of the rank held the GIL for longer than torch waits for it at exit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesyncReport:
    """torch's report (`TORCH_NCCL_DESYNC_DEBUG`). Ranks are ranks of the group; `absent` did not join call `seq`.

    `reporter` is the speaker, `members` are all ranks that the report lists: in full it lists the whole group.
    """

    op: str
    seq: int
    reporter: int
    absent: tuple[int, ...]
    unfinished: tuple[int, ...] = ()
    members: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What a rank runs, as `TORCH_DISTRIBUTED_DEBUG=DETAIL` prints of the reporting rank (of others: garbage).

    `seq` is None from torch before 2.1, which prints none.
    """

    rank: int
    seq: int | None
    op: str
    shape: tuple[int, ...] | None = None
    dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierMissing:
    """Rank 0 of a monitored barrier names who did not come (ranks of the group)."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreWait:
    """A rank waits in the store-based barrier of start-up, or gave up in it."""

    rank: int
    world_size: int | None
    joined: int | None
    has_timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUnreachable:
    """A rank cannot connect to the rendezvous at `address` (host:port)."""

    address: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTimeout:
    """A rank waited in the store for a key that nobody set: `wait timeout after 300000ms, keys: ...`."""

    key: str
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLost:
    """A connection ended: an echo of something else. `peer`: an address; `local_rank`: of the same host, if named."""

    peer: str = ""
    local_rank: int | None = None
    reason: str = ""
    is_store: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteError:
    """Another rank reported an error first (`remote error detected from rank: R`)."""

    from_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """A communicator was aborted: what waiting ranks print after a timeout; an echo."""


class Failure(str, Enum):
    """Kinds of exceptions; the last three follow from what another rank, or the watchdog, did."""

    GPU_MEMORY = "out of GPU memory"
    GPU_FAULT = "a fault of the GPU"
    GPU_ERROR = "a CUDA error"
    HOST_MEMORY = "out of host memory"
    PYTHON = "an exception"
    COLLECTIVE_ECHO = "a collective that timed out or was aborted"
    CONNECTION_ECHO = "a lost connection"
    LAUNCHER_ECHO = "the launcher's own exception"

    __str__ = str.__str__

    @property
    def is_echo(self) -> bool:
        """Whether it tells of the end of something else."""
        return self in (Failure.COLLECTIVE_ECHO, Failure.CONNECTION_ECHO, Failure.LAUNCHER_ECHO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """A traceback, or a C++ exception that ended a thread of torch. `stack`: innermost first, empty without one.

    `is_aside`: it ended a background thread or a task only; the process may go on, and wait like all others.
    """

    exception: str
    message: str
    failure: Failure
    stack: Stack = ()
    is_aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """A process ended badly, as its launcher, scheduler, container runtime or the runtime itself says.

    `exit_status` is None where a `signal` ended it or nothing is said. `is_first`: the launcher calls it the first
    failure. `is_memory`: it says that memory was the reason. `reason`: in its own words.
    """

    exit_status: int | None = None
    signal: int | None = None
    reason: str = ""
    is_first: bool = False
    is_memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedByLauncher:
    """The launcher ends a process because another one failed: an echo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """The launcher starts all ranks anew: what came before is of an earlier attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The rank ended its part in good order: it destroyed its communicator or group, or said that it is done."""

    how: str


TRAINING = "training"
"""The phase of a training step: the only one of `Activity` that `analyze.phases.Phase` does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What the program says it does. `phase`: the words of `analyze.phases.Phase`, or `TRAINING`.

    `progress`: `(13, 24)` of a bar; `step`: the number of the training step.
    """

    phase: str
    text: str
    progress: tuple[int, int] | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDown:
    """A host that does not answer (`ping`, `ssh`) or that the scheduler calls down; `reason` in its own words."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting or version that a log shows: an environment variable, `nccl`, `torch`, `driver`, `machine` (uname)."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSize:
    """How many ranks the job should have, as a line says."""

    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommEvent:
    """A communicator's life. `rank` is the one inside it. `bus_id` as NVML prints it in lower case: `0000:9b:00.0`.

    `event`: `init-start`, `init-complete`, `abort-start`, `abort-complete`, `destroy-complete`, `revoke`. A split one
    has `parent` (its pointer), `color` and `split`; `comm_id` is None where NCCL does not print it.
    """

    comm: str
    event: str
    rank: int
    size: int
    cuda_device: int | None = None
    bus_id: str | None = None
    comm_id: str | None = None
    parent: str | None = None
    color: int | None = None
    split: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkError:
    """A completion error, or a socket that timed out or failed. `status`: IBV work completion (12 retries exceeded).

    `is_echo`: it follows from an earlier error (flush) or from the peer's end (connection closed, reset).
    """

    text: str
    peer: str = ""
    status: int | None = None
    device: str = ""
    local_address: str = ""
    remote_address: str = ""
    is_echo: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PortError:
    """An adapter's own event: port error, link down, device fatal."""

    device: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupError:
    """NCCL or torch refuses to set up: mixed versions, duplicate GPU or rank, wrong count, bad address or interface."""

    text: str
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclWarning:
    """Any other WARN of NCCL, and its error backtrace (`init.cc:1270 -> 3`)."""

    text: str


LogFact = (
    WorkTimeout | GroupProgress | GroupJoined | DumpSignal | DumpWritten | WatchdogStuck | GilStuck | DesyncReport
    | Fingerprint | BarrierMissing | StoreWait | StoreUnreachable | StoreTimeout | PeerLost | RemoteError | Aborted
    | Raised | Died | StoppedByLauncher | Restarted | Left | Activity | HostDown | Setting | WorldSize | CommEvent
    | NetworkError | PortError | SetupError | NcclWarning
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One line and what it tells. `line` counts from 1. Who wrote it, as far as the line says, not the file's name.

    `rank` is global; `group`: the process group whose thread of torch wrote the line. `when_ns`: the writer's own wall
    clock in ns since 1970 read as if it were UTC, for no log says its zone; where the line has no year, it is that of
    the nearest dated line of the file, else 1970. `after_ns`: of a line without a time, that of the last event before
    it in its log; it orders lines and is no time of its own. `is_newest_first`: its log lists the newest line first.
    """

    line: int
    quote: str
    what: LogFact
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    when_ns: int | None = None
    group: LogGroup | None = None
    after_ns: int | None = None
    is_newest_first: bool = False

    @property
    def place(self) -> int:
        """Grows from each line of its log to one that was written after it."""
        return -self.line if self.is_newest_first else self.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Who wrote lines of a log, and the last of them. Of a long log only both ends and the telling lines are heard."""

    rank: int | None
    host: str | None
    pid: int | None
    lines: int
    last_line: int
    last_words: str
    last_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTrace:
    """The operations one process issued on one communicator (`NCCL_DEBUG_SUBSYS=COLL`), in order, in columns.

    Printed when issued: nothing tells what completed. `rank` and `size` are of the communicator (None before its Init
    line was seen); `op_count` is NCCL's hex `opCount`: it moves per launch, so it orders traces that begin late but is
    no sequence number. `root` is the root, or the peer of a send or recv. `line` is each one's line. Of a long log only
    the last operations are kept: `left_out` came before the first row. `is_call`: from `NCCL CALL` lines, which have no
    `op_count` (0).
    """

    host: str
    pid: int
    comm: str
    comm_id: str | None
    rank: int | None
    size: int | None
    cuda_device: int | None
    signatures: tuple[Signature, ...]
    left_out: int = 0
    is_call: bool = False
    signature_of: "array[int]" = field(default_factory=lambda: array("I"))
    root: "array[int]" = field(default_factory=lambda: array("q"))
    op_count: "array[int]" = field(default_factory=lambda: array("Q"))
    line: "array[int]" = field(default_factory=lambda: array("Q"))

    def __len__(self) -> int:
        return len(self.signature_of)
