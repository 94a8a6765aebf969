"""Flight-recorder dumps of simulated ranks, byte for byte in torch's formats.

In: a rank's entries and counters. Out: the bytes of its file, pickle or JSON, of any version.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from ncclprobe.model.frames import Frame
from ncclprobe.simulate.calls import shapes
from ncclprobe.simulate.job import Job
from ncclprobe.simulate.layout import Group
from ncclprobe.simulate.recorder import Counters, Entry
from ncclprobe.simulate.sites import SITES
from ncclprobe.simulate.torch_pickle import TorchPickle, integer
from ncclprobe.simulate.versions import DYNAMIC, DumpVersion

FILE_STEM = "comm_lib_trace_rank_"
_LIBRARY = "2.27.5"
GPUS_PER_HOST = 8

_FIELDS = {
    "record_id": "record_id",
    "collective_seq_id": "collective_seq",
    "p2p_seq_id": "p2p_seq",
    "op_id": "op_id",
    "time_created_ns": "created_ns",
    "time_discovered_completed_ns": "completed_ns",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """One rank's dump. `axes` are those whose communicators were made."""

    job: Job
    rank: int
    axes: tuple[str, ...]
    version: DumpVersion
    has_frames: bool

    def pickle(self, entries: Sequence[Entry], counters: Counters) -> bytes:
        """As `_dump_nccl_trace` and the watchdog write it."""
        writer = TorchPickle(_frames_used_once(entries) if self.has_frames else ())
        if self.version.is_list:
            return writer.whole(writer.sequence(self._pickled(writer, entries)))
        head = b"".join(writer.text(key) + writer.value(value) for key, value in self._head(counters))
        body = writer.text("entries") + writer.sequence(self._pickled(writer, entries))
        return writer.whole(b"}(" + head + body + b"u")

    def json(self, entries: Iterable[Entry], counters: Counters) -> bytes:
        """As `_dump_nccl_trace_json` writes it: no frames, counters as text, no key for an empty list."""
        document: dict[str, Any] = dict(self._head(counters))
        for status in document.get("pg_status", {}).values():
            status.update({key: str(value) for key, value in status.items()})
        document["nccl_comm_state"] = {}
        found = [self._plain(entry) for entry in entries]
        if found:
            document["entries"] = found
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    def _head(self, counters: Counters) -> Iterator[tuple[str, Any]]:
        yield "version", self.version.text
        yield "pg_config", dict(self._config())
        if self.version.library_key:
            yield self.version.library_key, _LIBRARY
        if self.version.has_status:
            yield "pg_status", dict(self._statuses(counters))

    def _config(self) -> Iterator[tuple[Any, Any]]:
        groups = {axis: self.job.layout.group(axis, self.rank) for axis in self.axes}
        if not self.version.has_named_groups:
            yield from ((self._pg_id(axis), list(group.ranks)) for axis, group in groups.items())
            return
        for group in sorted(groups.values(), key=lambda group: (group.name, group.description)):
            yield (
                group.name,
                {"name": group.name, "desc": group.description, "ranks": self.job.layout.ranks_text(group)},
            )

    def _statuses(self, counters: Counters) -> Iterator[tuple[str, dict[str, int]]]:
        for axis in sorted(self.axes, key=self._pg_id):
            status = counters.statuses[axis]
            yield (
                str(self._pg_id(axis)),
                {
                    "last_enqueued_collective": status.enqueued,
                    "last_started_collective": -1,  # torch knows starts only with TORCH_NCCL_ENABLE_TIMING
                    "last_completed_collective": status.completed,
                },
            )

    def _pg_id(self, axis: str) -> int:
        return self.job.layout.axes[axis].pg_id[self.rank]

    def _pickled(self, writer: TorchPickle, entries: Iterable[Entry]) -> Iterator[bytes]:
        """The bytes of each entry: those common to its kind, with its own numbers in between."""
        numbers = _reader(tuple(key for key in self.version.entry_keys if key in DYNAMIC))
        for entry in entries:
            chunks = writer.chunks(_kind(entry), partial(self._static, writer, entry))
            pieces = [chunks[0]]
            for number, chunk in zip(numbers(entry), chunks[1:], strict=True):
                pieces += (b"N" if number is None else integer(number), chunk)
            yield b"".join(pieces)

    def _static(self, writer: TorchPickle, entry: Entry) -> Iterator[bytes]:
        """The bytes between the values that differ from entry to entry."""
        fields = self._fields(entry)
        chunk = b"}("
        for key in self.version.entry_keys:
            if key in DYNAMIC:
                yield chunk + writer.text(key)
                chunk = b""
            elif key in fields:
                chunk += writer.text(key) + writer.value(fields[key])
        yield chunk + b"u"

    def _plain(self, entry: Entry) -> dict[str, Any]:
        fields = self._fields(entry)
        fields.update({key: _dynamic(entry, key) for key in self.version.entry_keys if key in DYNAMIC})
        for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            fields[key] = fields.get(key) or 0
        known = {key: fields[key] for key in self.version.entry_keys if key in fields}
        known.pop("frames", None)
        return known

    def _fields(self, entry: Entry) -> dict[str, Any]:
        """All that is the same for every entry of this kind."""
        call, layout = entry.call, self.job.layout
        axis = layout.axes[call.axis]
        group, member = layout.group(call.axis, self.rank), axis.member[self.rank]
        name, inputs, outputs, dtype = self._operation(entry, group, member)
        has_ended = entry.completed_ns is not None
        fields: dict[str, Any] = {
            "frames": list(SITES[call.site]),
            "pg_id": axis.pg_id[self.rank],
            "process_group": (group.name, group.description),
            "thread_name": f"pt_autograd_{self.rank % GPUS_PER_HOST}" if call.is_on_autograd else "python3",
            "thread_id": str(139_700_000_000_000 + self.rank * 8192 + 4096 * call.is_on_autograd),
            "profiling_name": f"nccl:{name}",
            "input_sizes": [list(sizes) for sizes in inputs],
            "input_dtypes": [dtype] * len(inputs),
            "output_sizes": [list(sizes) for sizes in outputs],
            "output_dtypes": [dtype] * len(outputs),
            "state": "completed" if has_ended else "scheduled",
            "time_discovered_started_ns": None,
            "retired": has_ended,
            "timeout_ms": call.timeout_ms,
            "is_p2p": call.is_p2p,
        }
        if not self.has_frames:
            del fields["frames"]
        return fields

    def _operation(self, entry: Entry, group: Group, member: int) -> tuple[str, Any, Any, str]:
        """Name, input and output sizes and type; a send or recv names both ends by their rank inside the group."""
        call = entry.call
        if not call.is_p2p:
            return call.op, *shapes(call, member, len(group.ranks), entry.collective_seq), call.dtype
        if entry.part < 0:
            return "coalesced", (), (), call.dtype
        part = call.parts[entry.part]
        peer = self.job.peer(call.axis, self.rank, part.peer)
        name = f"send {member}->{peer}" if part.is_send else f"recv {member}<-{peer}"
        return name, part.sizes, part.sizes, part.dtype


def _frames_used_once(entries: Iterable[Entry]) -> frozenset[Frame]:
    uses: Counter[Frame] = Counter()
    for site, count in Counter(entry.call.site for entry in entries).items():
        for frame in SITES[site]:
            uses[frame] += count
    return frozenset(frame for frame, count in uses.items() if count == 1)


def _reader(keys: tuple[str, ...]) -> Callable[[Entry], tuple[int | None, ...]]:
    """Takes the values of those keys out of an entry; where they stand in it as they are, without a call for each."""
    if all(key in _FIELDS for key in keys):
        return itemgetter(*(Entry._fields.index(_FIELDS[key]) for key in keys))
    return lambda entry: tuple(_dynamic(entry, key) for key in keys)


def _dynamic(entry: Entry, key: str) -> int | None:
    if key == "seq_id":  # before torch 2.4 one counter for both, which a batch moved on only at its end
        return entry.collective_seq + entry.p2p_seq - (entry.call.is_batch and entry.part >= 0)
    if key == "time_created_us":
        return entry.created_ns // 1000
    value: int | None = getattr(entry, _FIELDS[key])
    return value


def _kind(entry: Entry) -> object:
    """Entries of one kind differ in their dynamic values only; sizes of uneven calls come round every eighth time."""
    turn = entry.collective_seq % 8 if entry.call.is_uneven else 0
    return entry.call, entry.part, turn, entry.completed_ns is None
