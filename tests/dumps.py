"""Flight-recorder dumps in every version's real format.

In: one rank's calls, in order. Out: the bytes of its dump, as that version of torch writes it.

    dump([call("all_reduce", sizes=[[4, 8]])] * 3, completed_upto=2)

Sequence numbers, ids and times are counted as torch counts them: per group for collectives, apart for point-to-point
calls. A call that is not completed is the last thing its rank did in its group.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.torch_pickle import torch_pickle

VERSIONS = ("2.2", "1.4", "2.1", "2.4", "2.9", "2.10")
"""All that there are, oldest first; "2.2" stands for the bare list of torch 2.2, which has no version."""

START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000

Sizes = Sequence[Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Group:
    """A process group as one rank knows it. `pg_id` is that rank's own number for it."""

    name: str
    description: str = "undefined"
    ranks: tuple[int, ...] = ()
    pg_id: int = 0


WORLD = Group(name="0", description="default_pg", ranks=(0, 1, 2, 3))


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call; None means "as counted" or "as `completed_upto` says"."""

    op: str
    group: Group
    sizes: Sizes
    output_sizes: Sizes
    dtypes: Sequence[str]
    frames: Sequence[dict[str, Any]]
    timeout_ms: int
    seq: int | None = None
    state: str | None = None
    retired: bool | None = None
    created_ns: int | None = None

    @property
    def is_p2p(self) -> bool:
        return self.op.startswith(("send ", "recv "))


def frame(function: str, file: str = "/home/user/train.py", line: int = 1) -> dict[str, Any]:
    """One frame of a call's stack; use the same object in several calls, as torch does."""
    return {"name": function, "filename": file, "line": line}


def call(
    op: str,
    *,
    group: Group = WORLD,
    sizes: Sizes = ((4,),),
    output_sizes: Sizes | None = None,
    dtypes: Sequence[str] = ("Float",),
    frames: Sequence[dict[str, Any]] = (),
    timeout_ms: int = 600_000,
    **known: Any,
) -> Call:
    """`op` has no backend: `all_reduce`, `send 0->1`, `recv 1<-0`. `known`: seq, state, retired, created_ns."""
    outputs = sizes if output_sizes is None else output_sizes
    return Call(
        op=op,
        group=group,
        sizes=sizes,
        output_sizes=outputs,
        dtypes=dtypes,
        frames=frames,
        timeout_ms=timeout_ms,
        **known,
    )


def dump(
    calls: Iterable[Call],
    *,
    version: str = "2.10",
    form: str = "pickle",
    backend: str = "nccl",
    groups: Iterable[Group] = (WORLD,),
    completed_upto: int | None = None,
    status: dict[str, tuple[int, int, int]] | None = None,
    library_version: str = "2.27.5",
) -> bytes:
    """`form` is "pickle" or, from version 2.4 on, "json". Calls up to `completed_upto` are done; None: all of them.

    `groups` are those that `pg_config` lists. `status` replaces the counters of `pg_status`: pg_id -> (enqueued,
    started, completed).
    """
    made = document(
        calls,
        version=version,
        backend=backend,
        groups=groups,
        completed_upto=completed_upto,
        status=status,
        library_version=library_version,
    )
    return json.dumps(as_json(made)).encode() if form == "json" else torch_pickle(made)


def document(
    calls: Iterable[Call],
    *,
    version: str = "2.10",
    backend: str = "nccl",
    groups: Iterable[Group] = (WORLD,),
    completed_upto: int | None = None,
    status: dict[str, tuple[int, int, int]] | None = None,
    library_version: str = "2.27.5",
) -> Any:
    """What a pickled dump holds, for tests that damage it before they write it with `torch_pickle`."""
    counters = _Counters()
    entries = [_entry(one, version, backend, completed_upto, counters) for one in calls]
    if version == "2.2":
        return entries
    made: dict[str, Any] = {"version": version, "pg_config": _pg_config(groups, version, backend)}
    if version in ("2.9", "2.10"):
        key = "nccl_version" if version == "2.9" else "comm_lib_version"
        made[key] = "" if backend == "gloo" else library_version
    if version in ("2.4", "2.9", "2.10"):
        values = counters.status if status is None else status
        made["pg_status"] = {pg_id: _counters_of(*numbers) for pg_id, numbers in values.items()}
    return {**made, "entries": entries}


def as_json(made: dict[str, Any]) -> dict[str, Any]:
    """The JSON form of a pickled document: no frames, times 0 for none, counters as text, no empty list of entries."""
    entries = [
        {key: 0 if value is None else value for key, value in entry.items() if key != "frames"}
        for entry in made["entries"]
    ]
    texts = {
        pg_id: {name: str(number) for name, number in numbers.items()} for pg_id, numbers in made["pg_status"].items()
    }
    made = {**made, "nccl_comm_state": {}, "pg_status": texts, "entries": entries}
    return made if entries else {key: value for key, value in made.items() if key != "entries"}


@dataclass
class _Counters:
    """What torch counts while a job runs."""

    record_id: int = 0
    seqs: dict[tuple[str, bool], int] = field(default_factory=dict)
    ops: dict[str, int] = field(default_factory=dict)
    status: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def next_seq(self, one: Call, *, is_apart: bool) -> int:
        """`is_apart`: point-to-point calls have a counter of their own, as from torch 2.4 on."""
        key = (one.group.name, one.is_p2p and is_apart)
        seq = self.seqs[key] = self.seqs.get(key, 0) + 1 if one.seq is None else one.seq
        self.ops[one.group.name] = self.ops.get(one.group.name, 0) + 1
        return seq

    def note(self, one: Call, seq: int, *, is_done: bool) -> None:
        _, _, completed = self.status.get(str(one.group.pg_id), (0, -1, -1))
        self.status[str(one.group.pg_id)] = (seq, -1, seq if is_done else completed)


def _entry(one: Call, version: str, backend: str, completed_upto: int | None, counters: _Counters) -> dict[str, Any]:
    seq = counters.next_seq(one, is_apart=version not in ("2.2", "1.4"))
    is_done = completed_upto is None or seq <= completed_upto
    counters.note(one, seq, is_done=is_done)
    created_ns = START_NS + counters.record_id * STEP_NS if one.created_ns is None else one.created_ns
    done_state = "scheduled" if backend == "gloo" else "completed"
    entry: dict[str, Any] = {"frames": list(one.frames), "pg_id": one.group.pg_id}
    if version != "2.2":
        entry |= {"record_id": counters.record_id, "op_id": counters.ops[one.group.name]}
    entry |= _identity(one, seq, version, counters)
    entry |= {
        "profiling_name": f"{backend}:{one.op}",
        "input_sizes": [list(sizes) for sizes in one.sizes],
        "output_sizes": [list(sizes) for sizes in one.output_sizes],
        "state": one.state or (done_state if is_done else "scheduled"),
        "retired": is_done if one.retired is None else one.retired,
    }
    entry |= _times(created_ns, version, is_done=is_done and backend != "gloo")
    if version not in ("2.2", "1.4"):
        entry |= {"input_dtypes": list(one.dtypes), "output_dtypes": list(one.dtypes), "is_p2p": one.is_p2p}
    if version in ("2.4", "2.9", "2.10"):
        entry["timeout_ms"] = one.timeout_ms
    if version in ("2.9", "2.10"):
        entry |= {"thread_id": "139626229111680", "thread_name": "pt_main_thread"}
    counters.record_id += 1
    return entry


def _identity(one: Call, seq: int, version: str, counters: _Counters) -> dict[str, Any]:
    if version in ("2.2", "1.4"):
        return {"seq_id": seq}
    other = counters.seqs.get((one.group.name, not one.is_p2p), 0)
    return {
        "process_group": (one.group.name, one.group.description),
        "collective_seq_id": other if one.is_p2p else seq,
        "p2p_seq_id": seq if one.is_p2p else other,
    }


def _times(created_ns: int, version: str, *, is_done: bool) -> dict[str, Any]:
    if version == "2.2":
        return {"time_created_us": created_ns // 1000}
    return {
        "time_created_ns": created_ns,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": created_ns + STEP_NS // 2 if is_done else None,
    }


def _pg_config(groups: Iterable[Group], version: str, backend: str) -> dict[Any, Any]:
    """Torch 2.3: number -> ranks; later: name -> text. gloo records one group, before it has a name."""
    if version == "1.4":
        return {group.pg_id: list(group.ranks) for group in groups}
    if backend == "gloo":
        return {"": {"name": "", "desc": "", "ranks": "[]"}}
    return {
        group.name: {"name": group.name, "desc": group.description, "ranks": str(list(group.ranks))} for group in groups
    }


def _counters_of(enqueued: int, started: int, completed: int) -> dict[str, int]:
    return {
        "last_enqueued_collective": enqueued,
        "last_started_collective": started,
        "last_completed_collective": completed,
    }
