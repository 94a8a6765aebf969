import dataclasses
import io
import json
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ncclprobe.bundle import BundleWriter, is_bundle, open_bundle
from ncclprobe.bundle.manifest import from_json, to_json
from ncclprobe.bundle.paths import path_problem, safe_name
from ncclprobe.model.errors import BundleError
from ncclprobe.model.evidence import Artifact, Gap, Kind
from ncclprobe.model.manifest import HostOutcome, Manifest, Outcome, SourceOutcome

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
COUNTS = st.integers(0, (1 << 63) - 1)
SECONDS = st.floats(0, 1e9)
GAPS = st.builds(Gap, who=TEXTS, what=TEXTS, why=TEXTS, action=TEXTS)
SOURCES = st.builds(
    SourceOutcome, name=TEXTS, outcome=st.sampled_from(Outcome), seconds=SECONDS, longest_pause_s=st.none() | SECONDS
)
HOSTS = st.builds(
    HostOutcome,
    name=TEXTS,
    address=TEXTS,
    outcome=st.sampled_from(Outcome),
    clock_offset_ns=st.none() | st.integers(-(1 << 62), 1 << 62),
    python=st.none() | TEXTS,
    sources=st.lists(SOURCES, max_size=3).map(tuple),
    gaps=st.lists(GAPS, max_size=3).map(tuple),
)
NAMES = st.text("ab.-_ ü", min_size=1, max_size=12).filter(lambda name: name not in (".", ".."))
ITEMS = st.builds(
    Artifact,
    path=st.lists(NAMES, min_size=1, max_size=4).map(lambda parts: "/".join(["hosts", *parts])),
    kind=st.sampled_from(Kind),
    host=TEXTS,
    origin=TEXTS,
    rank=st.none() | COUNTS,
    pid=st.none() | COUNTS,
    look=st.none() | COUNTS,
    start_ns=st.none() | COUNTS,
    end_ns=st.none() | COUNTS,
    exit_status=st.none() | st.integers(-255, 255),
    size_bytes=st.none() | COUNTS,
    sha256=st.none() | st.text("0123456789abcdef", min_size=64, max_size=64),
    truncated=st.booleans(),
)
MANIFESTS = st.builds(
    Manifest,
    schema_version=st.just("1"),
    tool_version=TEXTS,
    created_ns=COUNTS,
    job=st.none() | TEXTS,
    interval_s=st.none() | SECONDS,
    hosts=st.lists(HOSTS, max_size=3).map(tuple),
    items=st.lists(ITEMS, max_size=4, unique_by=lambda item: item.path).map(tuple),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@contextmanager
def file_of(data: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "bundle"
        path.write_bytes(data)
        yield path


def assert_helpful(error: BundleError) -> None:
    assert str(error).isprintable()
    assert error.advice.isprintable()


@given(MANIFESTS)
def test_manifests_survive_the_round_trip(manifest: Manifest) -> None:
    assert from_json(to_json(manifest)) == manifest


@given(st.data(), MANIFESTS, JSON)
def test_a_manifest_with_anything_in_any_place_is_read_or_refused(
    data: st.DataObject, manifest: Manifest, value: object
) -> None:
    tree = json.loads(to_json(manifest))
    place = tree
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        inner = place[key]
        if not isinstance(inner, (dict, list)) or not inner or data.draw(st.booleans()):
            break
        place = inner
    place[key] = value
    try:
        changed = from_json(json.dumps(tree))
    except BundleError as error:
        assert_helpful(error)
    else:
        assert from_json(to_json(changed)) == changed


@given(st.text(max_size=200))
def test_safe_names_are_safe(text: str) -> None:
    name = safe_name(text)
    assert path_problem(f"hosts/{name}") is None
    assert "/" not in name


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(TEXTS, st.text(max_size=30), st.lists(st.binary(max_size=2000), max_size=4)), max_size=6),
    st.lists(HOSTS, max_size=3, unique_by=lambda host: host.name),
)
def test_what_is_written_is_read_whatever_the_form(
    files: list[tuple[str, str, list[bytes]]], hosts: list[HostOutcome]
) -> None:
    seen = []
    with tempfile.TemporaryDirectory() as directory:
        for name in ("bundle", "bundle.tar", "bundle.tgz"):
            path = Path(directory) / name
            with BundleWriter.create(path, "1.2.3", "job", 0.5) as writer:
                for host, file, chunks in files:
                    writer.add(Artifact(path=file, kind=Kind.GPU, host=host, origin="nvml"), chunks)
                for outcome in hosts:
                    writer.add_host(outcome)
            assert is_bundle(path)
            with open_bundle(path) as bundle:
                assert bundle.gaps == ()
                assert sorted(bundle.manifest.hosts, key=lambda host: host.name) == sorted(
                    hosts, key=lambda host: host.name
                )
                data = {item.path: bundle.read(item) for item in bundle.manifest.items}
                seen.append((dataclasses.replace(bundle.manifest, created_ns=0), data))
    assert seen[0] == seen[1] == seen[2]
    assert sorted(seen[0][1].values()) == sorted(b"".join(chunks) for _, _, chunks in files)


def written(name: str) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        with BundleWriter.create(path, "1.2.3", "job", 0.5) as writer:
            for number in range(3):
                artifact = Artifact(path=f"gpu/{number}", kind=Kind.GPU, host=f"n{number}", origin="nvml")
                writer.add(artifact, [bytes(range(256)) * number * 3])
                writer.add_host(HostOutcome(name=f"n{number}", address="x", outcome=Outcome.COMPLETE))
        return path.read_bytes()


ARCHIVES = {name: written(name) for name in ("b.tgz", "b.tar")}


def outcome_of(data: bytes) -> tuple[str, object, object]:
    """`refused`, `gaps` or `clean`, with manifest and bytes; anything but a BundleError goes through."""
    with file_of(data) as path:
        is_bundle(path)
        try:
            with open_bundle(path) as bundle:
                files = {item.path: bundle.read(item) for item in bundle.manifest.items}
                return ("gaps" if bundle.gaps else "clean"), bundle.manifest, files
        except BundleError as error:
            assert_helpful(error)
            return "refused", None, None


WHOLE = {name: outcome_of(data) for name, data in ARCHIVES.items()}


@pytest.mark.parametrize("name", ["b.tgz", "b.tar"])
def test_every_truncation_is_refused_or_a_gap(name: str) -> None:
    data = ARCHIVES[name]
    # All that follows a plain tar's first block of zeros is padding.
    end = len(data) if name == "b.tgz" else -(-len(data.rstrip(b"\0")) // 512) * 512 + 512
    for length in sorted({*range(0, end, 7), *range(512, end, 512), *range(max(0, end - 20), end)}):
        assert outcome_of(data[:length])[0] != "clean", length


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_a_flipped_byte_of_a_zipped_archive_is_refused_a_gap_or_without_effect(data: st.DataObject) -> None:
    archive = bytearray(ARCHIVES["b.tgz"])
    place = data.draw(st.integers(0, len(archive) - 1))
    archive[place] ^= data.draw(st.integers(1, 255))
    outcome = outcome_of(bytes(archive))
    assert outcome[0] != "clean" or outcome == WHOLE["b.tgz"]


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_a_flipped_byte_of_a_plain_archive_never_changes_evidence_unnoticed(data: st.DataObject) -> None:
    archive = bytearray(ARCHIVES["b.tar"])
    place = data.draw(st.integers(0, len(archive) - 1))
    archive[place] ^= data.draw(st.integers(1, 255))
    state, manifest, files = outcome_of(bytes(archive))
    # A flip may turn one legal manifest into another; the bytes that it vouches for are still the right ones.
    if state == "clean" and manifest == WHOLE["b.tar"][1]:
        assert files == WHOLE["b.tar"][2]


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=3000))
@example(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03")
def test_any_bytes_are_refused_or_a_gap(data: bytes) -> None:
    assert outcome_of(data)[0] != "clean"
    assert outcome_of(ARCHIVES["b.tgz"][: len(ARCHIVES["b.tgz"]) // 2] + data)[0] != "clean"


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.text(max_size=40) | st.sampled_from(["hosts/n/gpu/x", "manifest.json", "../x", "/x", "a/hosts/n/gpu/x"]),
            st.sampled_from([bytes([kind]) for kind in b"01234567ABLxgKS\0"]),
            st.binary(max_size=600),
        ),
        max_size=6,
    )
)
def test_any_members_are_refused_or_read_without_leaving_the_bundle(members: list[tuple[str, bytes, bytes]]) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", errors="surrogatepass") as archive:
        for name, kind, data in members:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(data)
            archive.addfile(info, io.BytesIO(data))
    _, manifest, files = outcome_of(buffer.getvalue())
    if isinstance(manifest, Manifest):
        assert all(path_problem(item.path) is None for item in manifest.items)
        assert isinstance(files, dict)
