"""Every artifact becomes records or a gap, in order of path, whoever's it is."""

import json
import pickle
from pathlib import Path

import pytest

from ncclprobe.bundle.writer import BundleWriter
from ncclprobe.inputs import open_inputs
from ncclprobe.loading import Item, load_items
from ncclprobe.model.errors import BundleError
from ncclprobe.model.evidence import Artifact, Gap, Kind
from ncclprobe.model.records import Evidence
from tests.dumps import call, dump

DUMP = dump([call("all_reduce")])
THREADS = [{"pid": 5, "thread_name": "MainThread", "os_thread_id": 5, "frames": [{"name": "f", "filename": "a.py"}]}]
STACKS = json.dumps(THREADS).encode()
KILL = b"[ 1.0] Out of memory: Killed process 5 (python3) total-vm:1kB, anon-rss:9kB\n"
PROCESS = b'{"processes": [{"pid": 5, "role": "rank", "rank": 0, "job": {}}]}'
GPU = b'{"driver": "550", "gpus": [{"index": 0}]}'
FILES = {
    "flight_recorder/rank0.file.dump": (Kind.FLIGHT_RECORDER, DUMP),
    "stacks/rank0.look1.json": (Kind.STACKS, STACKS),
    "processes/processes.json": (Kind.PROCESSES, PROCESS),
    "kernel_log/kernel.log": (Kind.KERNEL_LOG, KILL),
    "gpu/nvml.json": (Kind.GPU, GPU),
    "user_code/train.py": (Kind.USER_CODE, b"if rank == 0:\n    pass\n"),
}


def artifact(path: str, kind: Kind, *, rank: int | None = None, host: str = "node1") -> Artifact:
    return Artifact(path=path, kind=kind, host=host, origin="x", rank=rank)


def item(path: str, kind: Kind, data: bytes, *, rank: int | None = None) -> Item:
    return artifact(path, kind, rank=rank), lambda: data


def counts(evidence: Evidence) -> list[int]:
    kinds = ("recordings", "stacks", "processes", "oom_kills", "gpus", "source_files")
    return [len(getattr(evidence, kind)) for kind in kinds]


def written(path: Path, files: dict[str, tuple[Kind, bytes]]) -> Path:
    with BundleWriter.create(path, "1.0", None, 3.0) as writer:
        for name, (kind, data) in files.items():
            writer.add(artifact(f"hosts/node1/{name}", kind, rank=0), [data])
    return path


def loaded(path: Path) -> Evidence:
    with open_inputs([path]) as inputs:
        return load_items(inputs.items, inputs.hosts, inputs.gaps)


def test_a_bundle_becomes_records_of_every_kind(tmp_path: Path) -> None:
    evidence = loaded(written(tmp_path / "bundle", FILES))
    assert counts(evidence) == [1] * 6
    assert evidence.gaps == ()
    assert evidence.kinds == dict.fromkeys([str(kind) for kind, _ in FILES.values()], 1)
    assert evidence.recordings[0].artifact.path == "hosts/node1/flight_recorder/rank0.file.dump"
    assert evidence.recordings[0].artifact.rank == 0


def test_the_order_of_items_does_not_matter() -> None:
    items = [item(f"hosts/node1/{kind}/{number}", kind, data) for kind, data in FILES.values() for number in range(3)]
    assert load_items(items) == load_items(reversed(items))


@pytest.mark.parametrize("kind", [kind for kind, _ in FILES.values()])
def test_a_file_that_is_not_what_it_is_taken_for_is_one_gap(kind: Kind) -> None:
    noise = b"\0\1\2"
    items = [item(f"hosts/node1/x/{number}_1", of, data, rank=1) for number, (of, data) in enumerate(FILES.values())]
    evidence = load_items([*items, item("hosts/node1/bad_2", kind, noise, rank=2)])
    assert counts(evidence) == [1] * 6
    (gap,) = evidence.gaps
    assert (gap.who, gap.what) == ("rank 2", "hosts/node1/bad_2 cannot be read")
    assert evidence.kinds[str(kind)] == 2


def test_a_file_read_in_part_is_used_and_is_a_gap() -> None:
    damaged = json.loads(PROCESS)
    damaged["processes"].append({"pid": "no"})
    evidence = load_items([item("p", Kind.PROCESSES, json.dumps(damaged).encode())])
    assert len(evidence.processes) == 1
    (gap,) = evidence.gaps
    assert (gap.who, gap.what) == ("node1", "p cannot be read in full")
    assert gap.why.startswith("1 of 2 processes are damaged")


def test_a_file_that_is_gone_is_a_gap() -> None:
    def gone() -> bytes:
        raise BundleError("it is not in the bundle", "collect again")

    evidence = load_items([(artifact("a", Kind.STACKS), gone), item("b", Kind.STACKS, STACKS)])
    assert len(evidence.stacks) == 1
    assert [(gap.what, gap.why) for gap in evidence.gaps] == [("a cannot be read", "it is not in the bundle")]


def test_logs_without_a_telling_line_are_one_gap() -> None:
    given = [(artifact(f"{rank}.log", Kind.RANK_LOG, host=""), lambda: b"hello\n") for rank in range(3)]
    evidence = load_items([*given, item("hosts/node1/rank_log/0.log", Kind.RANK_LOG, b"hello\n", rank=0)])
    assert evidence.kinds == {"rank-log": 4}
    (gap,) = evidence.gaps
    assert gap.what == "3 logs not used, the first being 0.log"


def test_the_rank_of_a_dump_is_its_artifacts_and_else_its_names() -> None:
    items = [item("x/rank7", Kind.FLIGHT_RECORDER, DUMP, rank=0), item("x/rank3.file.dump", Kind.FLIGHT_RECORDER, DUMP)]
    assert [sourced.artifact.rank for sourced in load_items(items).recordings] == [3, 0]


def test_a_hostile_dump_in_a_bundle_costs_its_own_gap(tmp_path: Path) -> None:
    hostile = pickle.dumps(written, 4)
    files = {**FILES, "flight_recorder/rank1.dump": (Kind.FLIGHT_RECORDER, hostile)}
    evidence = loaded(written(tmp_path / "bundle", files))
    assert counts(evidence) == [1] * 6
    (gap,) = evidence.gaps
    assert gap.why.startswith("refused: ")


def test_hosts_and_earlier_gaps_are_kept() -> None:
    earlier = Gap(who="a", what="b", why="c", action="d")
    evidence = load_items([], gaps=[earlier])
    assert evidence.gaps == (earlier,)
    assert evidence.kinds == {}
