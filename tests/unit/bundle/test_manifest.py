import copy
import json
from typing import Any

import pytest

from ncclprobe.bundle.manifest import from_json, read_manifest, to_json
from ncclprobe.bundle.problems import Problems
from ncclprobe.model.errors import BundleError
from ncclprobe.model.evidence import Artifact, Gap, Kind
from ncclprobe.model.manifest import HostOutcome, Manifest, Outcome, SourceOutcome

FULL = Manifest(
    schema_version="1",
    tool_version="0.1.0",
    created_ns=1_700_000_000_000_000_000,
    job="run-7",
    interval_s=3.0,
    hosts=(
        HostOutcome(
            name="node1",
            address="10.0.0.1",
            outcome=Outcome.PARTIAL,
            clock_offset_ns=-5,
            python="3.11.2",
            sources=(SourceOutcome(name="stacks", outcome=Outcome.TIMED_OUT, seconds=0.5, longest_pause_s=0.01),),
            gaps=(Gap(who="rank 0", what="stack", why="ptrace refused", action="run as root"),),
        ),
        HostOutcome(name="node2", address="10.0.0.2", outcome=Outcome.FAILED),
    ),
    items=(
        Artifact(
            path="hosts/node1/stacks/rank0.json",
            kind=Kind.STACKS,
            host="node1",
            origin="py-spy dump --json",
            rank=0,
            pid=0,
            look=1,
            start_ns=1,
            end_ns=2,
            exit_status=-9,
            size_bytes=0,
            sha256="0" * 64,
            truncated=True,
        ),
        Artifact(path="hosts/node2/gpu/x", kind=Kind.GPU, host="node2", origin="nvml"),
    ),
)


def full_with(where: str, value: Any) -> str:
    """The full manifest as JSON with one key set to `value`, or removed when `value` is `del`."""
    tree = json.loads(to_json(FULL))
    *steps, last = where.split(".")
    place = tree
    for step in steps:
        place = place[int(step)] if step.isdigit() else place[step]
    if value is del_:
        del place[last]
    else:
        place[int(last) if last.isdigit() else last] = copy.deepcopy(value)
    return json.dumps(tree)


del_ = object()


def test_a_manifest_survives_the_round_trip() -> None:
    assert from_json(to_json(FULL)) == FULL


def test_the_text_is_stable_sorted_and_indented() -> None:
    text = to_json(FULL)
    assert text == to_json(from_json(text))
    assert text.endswith("}\n")
    keys = [line.split('"')[1] for line in text.splitlines() if line.startswith(' "')]
    assert keys == sorted(keys)
    assert text.isascii()


@pytest.mark.parametrize("where", ["new", "hosts.0.new", "hosts.0.sources.0.new", "hosts.0.gaps.0.new", "items.0.new"])
@pytest.mark.parametrize("value", [None, {"deep": [1]}, "a huge number"])
def test_unknown_keys_are_ignored(where: str, value: object) -> None:
    assert from_json(full_with(where, value).replace('"a huge number"', "9" * 9000)) == FULL


def test_keys_with_a_default_may_be_missing() -> None:
    item = from_json(full_with("items.0.truncated", del_)).items[0]
    assert item.truncated is False
    assert from_json(full_with("hosts.0.sources", del_)).hosts[0].sources == ()


@pytest.mark.parametrize(
    ("where", "value", "key"),
    [
        ("schema_version", del_, "schema_version is missing"),
        ("created_ns", del_, "created_ns is missing"),
        ("hosts", del_, "hosts is missing"),
        ("items", {}, "items must be a list"),
        ("items.1", 7, r"items\[1\] must be an object"),
        ("items.1.path", del_, r"items\[1\].path is missing"),
        ("items.1.path", 3, r"items\[1\].path must be text"),
        ("items.1.path", "/etc/passwd", r"items\[1\].path is absolute"),
        ("items.1.path", "hosts/../../x", r"items\[1\].path climbs"),
        ("items.1.path", "hosts/node1/stacks/rank0.json", r"items\[1\].path is listed twice"),
        ("items.0.size_bytes", -1, r"items\[0\].size_bytes must not be negative"),
        ("items.0.size_bytes", True, r"items\[0\].size_bytes must be a whole number"),
        ("items.0.size_bytes", 1.0, r"items\[0\].size_bytes must be a whole number"),
        ("items.0.size_bytes", 1 << 63, r"items\[0\].size_bytes must be a whole number"),
        ("items.0.rank", -1, r"items\[0\].rank must not be negative"),
        ("items.0.rank", "0", r"items\[0\].rank must be a whole number"),
        ("items.0.sha256", "xyz", r"items\[0\].sha256 must be 64"),
        ("items.0.truncated", 1, r"items\[0\].truncated must be true or false"),
        ("items.0.kind", ["stacks"], r"items\[0\].kind must be text"),
        ("hosts.1.outcome", "fine", r"hosts\[1\].outcome must be one of complete, partial"),
        ("hosts.0.sources.0.seconds", -0.5, r"hosts\[0\].sources\[0\].seconds must be a number"),
        ("hosts.0.sources.0.seconds", float("nan"), r"hosts\[0\].sources\[0\].seconds must be a number"),
        ("hosts.0.sources.0.seconds", float("inf"), r"hosts\[0\].sources\[0\].seconds must be a number"),
        ("hosts.0.gaps.0.why", None, r"hosts\[0\].gaps\[0\].why must be text"),
        ("interval_s", "3", "interval_s must be a number"),
    ],
)
def test_a_bad_key_is_refused_by_name(where: str, value: object, key: str) -> None:
    with pytest.raises(BundleError, match=key) as caught:
        from_json(full_with(where, value))
    assert caught.value.advice


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "must be an object"),
        ("null", "must be an object"),
        ("[" * 1_000_000, "nested too deeply"),
        ('{"a":' * 1_000_000, "nested too deeply"),
        ('{"schema_version": ' + "9" * 1_000_000 + "}", "schema_version must be text"),
    ],
)
def test_what_is_no_manifest_is_a_bundle_error(text: str, says: str) -> None:
    with pytest.raises(BundleError, match=says):
        from_json(text)


@pytest.mark.timeout(10)
def test_a_number_of_a_million_digits_costs_no_time() -> None:
    text = full_with("items.0.size_bytes", 123456789).replace("123456789", "9" * 1_000_000)
    with pytest.raises(BundleError, match=r"items\[0\].size_bytes"):
        from_json(text)


def test_another_format_names_the_version_that_reads_it() -> None:
    with pytest.raises(BundleError, match="format '2'") as caught:
        from_json(full_with("schema_version", "2").replace("0.1.0", "3.1.0"))
    assert "ncclprobe 3.1.0" in caught.value.advice
    assert from_json(full_with("schema_version", "1.4")).items == FULL.items


def test_items_of_an_unknown_kind_are_left_out_with_a_gap() -> None:
    problems = Problems()
    manifest = read_manifest(full_with("items.1.kind", "cosmic-rays"), problems)
    assert manifest.items == FULL.items[:1]
    (gap,) = problems.gaps()
    assert (gap.who, gap.what) == ("node2", "hosts/node2/gpu/x")
    assert "cosmic-rays" in gap.why
    assert "0.1.0 or newer" in gap.action


def test_lone_surrogates_become_printable_text() -> None:
    host = from_json(full_with("hosts.0.name", "a\udcff")).hosts[0]
    assert host.name.encode() == b"a\\udcff"
