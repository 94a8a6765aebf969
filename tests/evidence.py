"""Evidence for analyzer tests, written as a few words per rank.

In: calls such as `"all_reduce:8"` per rank. Out: the model's own types, without parsing.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ncclprobe.model.collectives import ProcessGroup, Recording, Signature
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.frames import Frame
from ncclprobe.model.job import JobKey, JobProcess, ProcessLook, Role
from ncclprobe.model.manifest import HostOutcome, Outcome
from ncclprobe.model.records import Evidence, Sourced
from ncclprobe.model.stacks import StackDump, Thread
from ncclprobe.parse import user_code

TRAIN = "/home/user/train.py"
WORLD = ProcessGroup(name="0", description="default_pg")
STEP_NS = 10_000_000
NOW_NS = 1_700_000_000_000_000_000


def recording(
    calls: Sequence[str],
    *,
    first_seq: int = 1,
    completed: int | None = None,
    group: ProcessGroup = WORLD,
    ranks: Iterable[int] = (),
) -> Recording:
    """`"op:size@line"` per call (size and line may be left out); the last one is outstanding unless told otherwise."""
    done = len(calls) - 1 if completed is None else completed
    members = ProcessGroup(name=group.name, description=group.description, ranks=tuple(ranks) or group.ranks)
    return (
        _recording(
            (members, text, first_seq + index, index < done, _stack(text.partition("@")[2]))
            for index, text in enumerate(calls)
        )
        if calls
        else Recording(version="2.10", library_version=None, groups=(members,), backends=("nccl",))
    )


def mixed(*calls: tuple) -> Recording:  # type: ignore[type-arg]
    """Calls in several groups, as `(group, members, op, seq)` with a fifth `True` where the call has ended."""
    return _recording(
        (ProcessGroup(name=name, ranks=members), op, seq, bool(ended and ended[0]), ())
        for name, members, op, seq, *ended in calls
    )


def _stack(line: str) -> tuple[Frame, ...]:
    return (Frame("train", TRAIN, int(line)),) if line else ()


def _recording(rows: Iterable[tuple[ProcessGroup, str, int, bool, tuple[Frame, ...]]]) -> Recording:
    groups: dict[ProcessGroup, int] = {}
    signatures: dict[Signature, int] = {}
    stacks: dict[tuple[Frame, ...], int] = {}
    columns = Recording(version="2.10", library_version=None)
    for index, (group, text, seq, is_completed, stack) in enumerate(rows):
        op, _, size = text.partition("@")[0].partition(":")
        sizes = ((int(size or 8),),)
        signature = Signature(op, sizes, sizes, ("Float",), ("Float",))
        columns.group_of.append(groups.setdefault(group, len(groups)))
        columns.signature_of.append(signatures.setdefault(signature, len(signatures)))
        columns.stack_of.append(stacks.setdefault(stack, len(stacks)))
        columns.seq.append(seq)
        columns.created_ns.append(NOW_NS + index * STEP_NS)
        columns.timeout_ms.append(600_000)
        columns.is_completed.append(is_completed)
        columns.is_p2p.append(op.startswith(("send", "recv", "coalesced")))
    return replace(
        columns, groups=tuple(groups), signatures=tuple(signatures), stacks=tuple(stacks), backends=("nccl",)
    )


def without_rows(made: Recording, *rows: int) -> Recording:
    """A damaged dump: these entries could not be read."""
    kept = [row for row in range(len(made)) if row not in rows]
    columns = ("group_of", "signature_of", "stack_of", "seq", "created_ns", "timeout_ms")
    arrays = {name: array(getattr(made, name).typecode, (getattr(made, name)[row] for row in kept)) for name in columns}
    flags = {name: bytearray(getattr(made, name)[row] for row in kept) for name in ("is_completed", "is_p2p")}
    return replace(made, is_whole=False, **arrays, **flags)


def dumps(recordings: Mapping[int, Recording], host: str = "node1") -> tuple[Sourced[Recording], ...]:
    """One dump per rank, all on one host."""
    return tuple(
        Sourced(
            Artifact(
                path=f"hosts/{host}/live_dump/rank{rank}.dump",
                kind=Kind.FLIGHT_RECORDER,
                host=host,
                origin="test",
                rank=rank,
                end_ns=NOW_NS + 60_000_000_000,
            ),
            made,
        )
        for rank, made in recordings.items()
    )


def processes(
    ranks: Iterable[int],
    world_size: int,
    host: str = "node1",
    cpu_s: float = 0.0,
    first_look_ns: int = NOW_NS + 60_000_000_000,
) -> tuple[Sourced[JobProcess], ...]:
    """A live process per rank, idle between two looks a second apart unless `cpu_s` says otherwise."""
    artifact = Artifact(path=f"hosts/{host}/processes/processes.json", kind=Kind.PROCESSES, host=host, origin="/proc")
    looks = tuple(
        ProcessLook(
            time_ns=first_look_ns + i * 1_000_000_000, state="S", wchan="futex_do_wait", cpu_s=10 + i * cpu_s, threads=4
        )
        for i in range(2)
    )
    return tuple(
        Sourced(
            artifact,
            JobProcess(
                pid=1000 + rank,
                role=Role.RANK,
                rank=rank,
                local_rank=rank,
                world_size=world_size,
                job=JobKey(run_id="job"),
                command="python train.py",
                user="user",
                looks=looks,
            ),
        )
        for rank in ranks
    )


def stacks(
    of_rank: Mapping[int, Sequence[Frame]], look: int = 2, host: str = "node1"
) -> tuple[Sourced[StackDump], ...]:
    """The main thread of each rank at one look."""
    return tuple(
        Sourced(
            Artifact(
                path=f"hosts/{host}/stacks/rank{rank}.look{look}.json",
                kind=Kind.STACKS,
                host=host,
                origin="py-spy",
                rank=rank,
                pid=1000 + rank,
                look=look,
            ),
            StackDump(pid=1000 + rank, threads=(Thread(name="MainThread", tid=1000 + rank, stack=tuple(frames)),)),
        )
        for rank, frames in of_rank.items()
    )


def both_looks(of_rank: Mapping[int, Sequence[Frame]], host: str = "node1") -> tuple[Sourced[StackDump], ...]:
    """The same stacks at both looks: nobody moved."""
    return stacks(of_rank, 1, host) + stacks(of_rank, 2, host)


def source(text: str, file: str = TRAIN, host: str = "node1") -> tuple[Sourced, ...]:  # type: ignore[type-arg]
    """The user's file."""
    artifact = Artifact(path=f"hosts/{host}/user_code/train.py", kind=Kind.USER_CODE, host=host, origin=file)
    return tuple(Sourced(artifact, record) for record in user_code.parse(text.encode()).records)


def host(name: str = "node1", outcome: Outcome = Outcome.COMPLETE) -> HostOutcome:
    """A host that answered, unless told otherwise."""
    return HostOutcome(name=name, address=name, outcome=outcome)


def evidence(**parts: object) -> Evidence:
    """Evidence of one host that answered."""
    return Evidence(**{"hosts": (host(),), **parts})  # type: ignore[arg-type]


C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
AUTOGRAD = "/opt/venv/lib/python3.11/site-packages/torch/autograd/graph.py"
DATALOADER = "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"


def in_collective(op: str, line: int) -> tuple[Frame, ...]:
    """A main thread in a blocking collective called from the user's line."""
    return (Frame(op, C10D, 100), Frame("train", TRAIN, line))


def in_backward(line: int) -> tuple[Frame, ...]:
    """A main thread in backward, as DDP's gradient all-reduce leaves it."""
    return (Frame("_engine_run_backward", AUTOGRAD, 900), Frame("train", TRAIN, line))
