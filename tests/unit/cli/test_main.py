"""What a person types, and what comes back: the report on standard output, the rest on standard error, a status."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ncclprobe.bundle.writer import BundleWriter
from ncclprobe.model.evidence import Artifact, Kind

FRAME = {"name": "f", "filename": "/a.py", "line": 1}
FRAME = {"name": "f", "filename": "/a.py", "line": 1}
STACK = json.dumps([{"pid": 7, "thread_name": "MainThread", "os_thread_id": 7, "frames": [FRAME]}])
LOADED_BY_HELP = """
import sys
sys.argv[1:] = ["--help"]
from ncclprobe.cli.main import main
try:
    main()
except SystemExit:
    print([m for m in ("paramiko", "torch", "numpy", "ncclprobe.workflow") if m in sys.modules], file=sys.stderr)
"""


def ncclprobe(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from ncclprobe.cli.main import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, input=stdin, check=False)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "bundle"
    with BundleWriter.create(path, "test", "job", 1.0) as writer:
        artifact = Artifact(path="stacks/rank0.json", kind=Kind.STACKS, host="node1", origin="py-spy", rank=0, look=1)
        writer.add(artifact, [STACK.encode()])
    return path


def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "empty.txt").write_text("\n# nobody\n")
    (tmp_path / "malformed.txt").write_text("node1\nnode2 and more\n")
    (tmp_path / "twice.txt").write_text("node1\nnode2\nnode1\n")
    (tmp_path / "binary.txt").write_bytes(b"\0\1\2")
    return {path.stem: str(path) for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["diagnose", "--hosts", "{empty}"], "names no host"),
        (["diagnose", "--hosts", "/no/such/file.txt"], "does not exist"),
        (["diagnose", "--hosts", "{malformed}"], "line 2"),
        (["diagnose", "--hosts", "{twice}"], "line 1"),
        (["diagnose", "--hosts", "{binary}"], "not text"),
        (["diagnose", "--hosts", "node1", "--local"], "contradict"),
        (["diagnose", "--hosts", "node[1-2]", "--pid", "1"], "several"),
        (["diagnose", "--format", "xml"], "format"),
        (["diagnose", "--interval", "50"], "deadline"),
        (["diagnose", "--no-stacks", "--native-stacks"], "contradicts"),
        (["diagnose", "--deadline", "soon"], "--deadline"),
        (["collect"], "--output"),
        (["analyze", "/no/such/bundle"], "does not exist"),
        (["repro", "no-such-thing"], "no-such-thing"),
        (["repro"], "no reproducer"),
        (["repro", "mismatched-logging", "--fixed", "--diagnose"], "contradict"),
        (["no-such-command"], "no-such-command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_wrong_usage_is_two_lines_and_status_2(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = ncclprobe(*(argument.format(**files(tmp_path)) for argument in arguments))
    assert done.returncode == 2
    assert done.stdout == ""
    what, advice = done.stderr.splitlines()
    assert what.startswith("ncclprobe: ")
    assert says in what
    assert advice.startswith("  -> ")


def test_what_is_no_bundle_is_no_evidence(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(bytes(range(256)))
    done = ncclprobe("analyze", str(tmp_path / "noise"), "--format", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (3, "")
    assert (report["status"], report["verdict"]["cause"]) == ("no-evidence", "inconclusive")
    assert [(gap["who"], bool(gap["action"])) for gap in report["gaps"]] == [("noise", True)]


def test_what_is_cut_off_or_hostile_is_said_in_two_lines(tmp_path: Path) -> None:
    (tmp_path / "cut.tar.gz").write_bytes(b"\x1f\x8b\x08\x00")
    done = ncclprobe("analyze", str(tmp_path / "cut.tar.gz"))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 2)


def test_a_file_on_standard_input() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from ncclprobe.cli.main import main; main()", "analyze", "-", "--format", "json"],
        input=STACK.encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert json.loads(done.stdout)["coverage"]["kinds"] == {"stacks": 1}


def test_the_report_alone_is_on_standard_output(bundle: Path) -> None:
    done = ncclprobe("analyze", str(bundle), "--format", "json")
    assert json.loads(done.stdout)["verdict"]["cause"] == "inconclusive"
    assert (done.returncode, done.stderr) == (3, "")


def test_a_hostile_dump_runs_nothing_and_is_one_gap(tmp_path: Path) -> None:
    """A pickle that would run a command if it were loaded the ordinary way."""
    mark = tmp_path / "was-run"
    hostile = b"cos\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR."
    with BundleWriter.create(tmp_path / "bundle", "test", "job", 1.0) as writer:
        artifact = Artifact(path="live_dump/rank0.dump", kind=Kind.FLIGHT_RECORDER, host="node1", origin="x", rank=0)
        writer.add(artifact, [hostile])
    done = ncclprobe("analyze", str(tmp_path / "bundle"), "--format", "json")
    (gap,) = [gap for gap in json.loads(done.stdout)["gaps"] if gap["who"] == "rank 0"]
    assert "cannot be read" in gap["what"]
    assert (done.returncode, done.stderr, mark.exists()) == (3, "", False)


def test_out_writes_the_same_report_to_a_file(bundle: Path, tmp_path: Path) -> None:
    shown = ncclprobe("analyze", str(bundle), "--format", "json").stdout
    done = ncclprobe("analyze", str(bundle), "--format", "json", "--out", str(tmp_path / "report.json"))
    assert (done.stdout, (tmp_path / "report.json").read_text()) == ("", shown)


def test_out_that_cannot_be_written_is_wrong_usage(bundle: Path) -> None:
    done = ncclprobe("analyze", str(bundle), "--out", "/no/such/folder/report")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 2)


def test_a_bundle_is_never_overwritten(bundle: Path) -> None:
    done = ncclprobe("collect", "-o", str(bundle))
    assert done.returncode == 2
    assert "not empty" in done.stderr


def test_help_imports_nothing_heavy() -> None:
    command = [sys.executable, "-c", LOADED_BY_HELP]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"
    assert "diagnose" in done.stdout


def test_the_version_is_printed() -> None:
    assert ncclprobe("--version").stdout.startswith("ncclprobe ")
