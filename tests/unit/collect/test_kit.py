"""The kit holds what a probe needs and nothing else, and its command finds a Python whatever the account's shell is."""

import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import ncclprobe
from ncclprobe.collect import kit
from tests.unit.probe.processes import installed_pythons, running

SHELLS = [name for name in ("sh", "bash", "dash", "csh", "tcsh", "fish", "zsh", "mksh", "ash") if shutil.which(name)]
TOOLS = ("sh", "ls", "sed", "grep", "sort", "cat", "env")
# What the command runs on the host: says which Python it is.
BOOTSTRAP = b"import sys, os; print(os.path.realpath(sys.executable), sys.version_info[:2] >= (3, 10), *sys.flags[:4])"


def run(shell: str, path: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    command = [shutil.which(shell) or shell, "-c", kit.COMMAND]
    data = b"%d\n" % len(BOOTSTRAP) + BOOTSTRAP
    env = {"PATH": path, "HOME": path, **environ}
    return subprocess.run(command, input=data, capture_output=True, env=env, timeout=60, check=False)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A PATH with the tools of a bare system, and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
    return folder


@pytest.fixture
def no_system_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command, as on a host whose system has no Python."""
    line = kit.COMMAND
    for name in ("/usr/local/bin/python3", "/usr/bin/python3", "/opt/conda/bin/python3"):
        assert name in line
        line = line.replace(f" {name}", "")
    monkeypatch.setattr(kit, "COMMAND", line)


@pytest.fixture
def nobody_runs_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command, as on a host where no Python runs."""
    monkeypatch.setattr(kit, "COMMAND", kit.COMMAND.replace("/proc/[0-9]*/exe", "/proc/none/exe"))


@pytest.fixture
def running_python() -> Iterator[int]:
    with running() as pid:
        yield pid


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_runs_the_command(shell: str, bare: Path) -> None:
    (bare / "python3").symlink_to(sys.executable)
    done = run(shell, str(bare))
    assert done.stderr == b""
    assert done.returncode == 0
    assert done.stdout.split()[1] == b"True"


@pytest.mark.parametrize("shell", SHELLS)
def test_no_python_on_the_path_but_one_that_runs(
    shell: str, bare: Path, no_system_python: None, running_python: int
) -> None:
    done = run(shell, str(bare))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1] == b"True"


@pytest.mark.parametrize("shell", SHELLS)
def test_no_python_at_all(shell: str, bare: Path, no_system_python: None, nobody_runs_python: None) -> None:
    done = run(shell, str(bare))
    assert done.returncode == kit.NO_PYTHON_STATUS
    assert done.stderr == b"no Python 3.10 or newer\n"


def test_an_old_python_is_passed_over(bare: Path, no_system_python: None, nobody_runs_python: None) -> None:
    old = bare / "python3"
    old.write_text('#!/bin/sh\ncase "$2" in *version_info*) exit 1;; esac\necho old\n')
    old.chmod(0o755)
    assert run("sh", str(bare)).returncode == kit.NO_PYTHON_STATUS
    (bare / "python3.12").symlink_to(sys.executable)
    assert run("sh", str(bare)).stdout.split()[1] == b"True"


@pytest.mark.parametrize("old", installed_pythons(range(6, 10)), ids=lambda path: path.name)
def test_the_real_old_ones(old: Path, bare: Path, no_system_python: None, nobody_runs_python: None) -> None:
    (bare / "python3").symlink_to(old)
    assert run("sh", str(bare)).returncode == kit.NO_PYTHON_STATUS


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_does_not_run_what_a_user_has_put_somewhere(
    tmp_path: Path, bare: Path, no_system_python: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc" / "1").mkdir(parents=True)
    theirs = tmp_path / "python3"
    theirs.write_text("#!/bin/sh\necho got you\n")
    theirs.chmod(0o755)
    os.chown(theirs, 65_534, 65_534)
    (tmp_path / "proc" / "1" / "exe").symlink_to(theirs)
    monkeypatch.setattr(kit, "COMMAND", kit.COMMAND.replace("/proc/", f"{tmp_path}/proc/"))
    assert run("sh", str(bare)).returncode == kit.NO_PYTHON_STATUS
    os.chown(theirs, 0, 0)
    assert run("sh", str(bare)).stdout == b"got you\n"


def test_the_environment_of_the_account_changes_nothing(bare: Path, tmp_path: Path) -> None:
    (bare / "python3").symlink_to(sys.executable)
    (tmp_path / "sitecustomize.py").write_text("print('noise')")
    done = run("sh", str(bare), PYTHONPATH=str(tmp_path), PYTHONSTARTUP="/nowhere", PYTHONVERBOSE="1")
    assert done.stdout.split()[1] == b"True"
    assert done.stderr == b""


def test_the_line_is_one_that_no_shell_changes() -> None:
    inner = kit.COMMAND.removeprefix("exec /bin/sh -c '").removesuffix("'")
    assert not set(inner) & set("'!\\\n`")
    assert len(kit.COMMAND) < 1000, "csh takes no longer word"
    assert "/environ" not in inner, "to read it may block"


@pytest.mark.parametrize("compressed", [False, True])
def test_what_is_in_the_kit(compressed: bool) -> None:
    with zipfile.ZipFile(io.BytesIO(kit.build(compressed=compressed))) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
        assert archive.read("ncclprobe/__init__.py") == Path(ncclprobe.__file__).read_bytes()
    assert {"tools/py-spy", "tools/injector.so", "tools/injection.so", "pynvml.py"} <= names
    assert {name.split("/")[1] for name in names if name.startswith("ncclprobe/")} == {
        "__init__.py",
        "model",
        "parse",
        "probe",
    }
    assert not [name for name in names if "__pycache__" in name or "psutil" in name]


def test_compressed_it_is_less_than_half() -> None:
    assert len(kit.build(compressed=True)) * 2 < len(kit.build(compressed=False))


def test_tools_that_are_not_installed_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kit, "_origin", lambda module: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with zipfile.ZipFile(io.BytesIO(kit.build(compressed=False))) as archive:
        assert not [name for name in archive.namelist() if not name.startswith("ncclprobe/")]


def test_the_payload_in_the_order_it_is_read() -> None:
    stream = io.BytesIO(kit.payload(b"KIT", {"host": "node1"}))
    bootstrap = stream.read(int(stream.readline()))
    compile(bootstrap, "bootstrap", "exec")
    assert json.loads(stream.readline()) == {
        "kit_bytes": 3,
        "machine": os.uname().machine,
        "request": {"host": "node1"},
    }
    assert stream.read() == b"KIT"
