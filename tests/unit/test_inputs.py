"""Loose files of evidence: found by content, never dangerous, every useless one a gap."""

import os
import pickle
from pathlib import Path

import pytest

from ncclprobe.bundle.writer import BundleWriter
from ncclprobe.inputs import open_inputs
from ncclprobe.model.errors import NcclprobeError, UsageError
from ncclprobe.model.evidence import Artifact, Kind

DUMP = pickle.dumps({"version": "2.10", "entries": []}, 2)


def test_files_below_a_directory_in_order_of_name(tmp_path: Path) -> None:
    for name in ("b/rank_1", "a/rank_0", "c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(DUMP)
    with open_inputs([tmp_path]) as inputs:
        assert [(item.path, item.rank, item.kind) for item, _ in inputs.items] == [
            ("c", None, Kind.FLIGHT_RECORDER),
            ("a/rank_0", 0, Kind.FLIGHT_RECORDER),
            ("b/rank_1", 1, Kind.FLIGHT_RECORDER),
        ]
        assert inputs.items[0][1]() == DUMP


def test_useless_files_are_gaps(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "noise").write_bytes(b"\0\1")
    (tmp_path / ".hidden").write_bytes(DUMP)
    with open_inputs([tmp_path]) as inputs:
        assert inputs.items == []
        assert {gap.who: gap.why for gap in inputs.gaps} == {
            "empty": "it is empty",
            "noise": "it is none of the kinds of evidence that can be read",
        }


def test_links_pipes_and_files_that_vanish_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "rank_0").write_bytes(DUMP)
    with open_inputs([tmp_path]) as inputs:
        assert {gap.who for gap in inputs.gaps} == {"link", "pipe"}
        (tmp_path / "rank_0").unlink()
        with pytest.raises(NcclprobeError):
            inputs.items[0][1]()


def test_a_bundle_and_loose_files_in_one_go(tmp_path: Path) -> None:
    with BundleWriter.create(tmp_path / "bundle", "test", None, None) as writer:
        writer.add(Artifact(path="live_dump/rank0", kind=Kind.FLIGHT_RECORDER, host="n", origin="x", rank=0), [DUMP])
    (tmp_path / "rank_1").write_bytes(DUMP)
    with open_inputs([tmp_path / "bundle", tmp_path / "rank_1"]) as inputs:
        assert [(item.rank, item.host) for item, _ in inputs.items] == [(0, "n"), (1, "")]


@pytest.mark.parametrize("name", ["bundle", "bundle.tar.gz"])
def test_a_directory_that_holds_a_bundle_is_that_bundle(name: str, tmp_path: Path) -> None:
    with BundleWriter.create(tmp_path / name, "test", None, None) as writer:
        writer.add(Artifact(path="live_dump/rank0", kind=Kind.FLIGHT_RECORDER, host="n", origin="x", rank=0), [DUMP])
    (tmp_path / "expected.json").write_text('{"cause": "rank-crashed"}')
    with open_inputs([tmp_path]) as inputs:
        assert [(item.path, item.host) for item, _ in inputs.items] == [("hosts/n/live_dump/rank0", "n")]
        assert inputs.items[0][1]() == DUMP
        (gap,) = inputs.gaps
        assert gap.what == "not read: expected.json"


def test_all_bundles_of_a_directory_are_read_and_links_to_them_are_not(tmp_path: Path) -> None:
    for host in ("a", "b"):
        with BundleWriter.create(tmp_path / host, "test", None, None) as writer:
            writer.add(Artifact(path="live_dump/0", kind=Kind.FLIGHT_RECORDER, host=host, origin="x", rank=0), [DUMP])
    (tmp_path / "c").symlink_to("a")
    with open_inputs([tmp_path]) as inputs:
        assert [item.host for item, _ in inputs.items] == ["a", "b"]
        assert [gap.what for gap in inputs.gaps] == ["not read: c"]


def test_an_archive_of_other_things_makes_no_directory_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "logs.tar.gz").write_bytes(b"\x1f\x8b nothing")
    (tmp_path / "rank_0").write_bytes(DUMP)
    with open_inputs([tmp_path]) as inputs:
        assert [item.path for item, _ in inputs.items] == ["rank_0"]
        assert [gap.who for gap in inputs.gaps] == ["logs.tar.gz"]


def test_a_path_that_does_not_exist_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError), open_inputs([tmp_path / "missing"]):
        pass
