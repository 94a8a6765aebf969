"""`ncclprobe run`: the command is the command itself, only better prepared."""

import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

CODE = "from ncclprobe.cli.main import main; main()"
CLEAN = {name: value for name, value in os.environ.items() if not re.match(r"(TORCH|NCCL|SLURM|PBS|LSB)", name)}


def run(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", CODE, "run", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env={**CLEAN, **environ},
    )


def test_the_command_has_the_settings_and_says_so_on_standard_error(tmp_path: Path) -> None:
    done = run("--dir", str(tmp_path / "dumps"), "--", "env", NCCL_DEBUG="INFO", TORCH_FR_BUFFER_SIZE="500")
    environ = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] == f"{tmp_path}/dumps/pipe_rank_"
    assert environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert (environ["NCCL_DEBUG"], environ["TORCH_FR_BUFFER_SIZE"]) == ("INFO", "500")
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" not in environ
    said = done.stderr.splitlines()
    assert all(line.startswith("ncclprobe: ") for line in said)
    assert any(line.startswith("ncclprobe: set TORCH_NCCL_DUMP_ON_TIMEOUT=1: ") for line in said)
    assert "ncclprobe: already set, left alone: NCCL_DEBUG=INFO" in said
    assert "ncclprobe: not set, because TORCH_FR_BUFFER_SIZE is: TORCH_NCCL_TRACE_BUFFER_SIZE" in said
    assert stat.S_IMODE((tmp_path / "dumps").stat().st_mode) == 0o700


@pytest.mark.parametrize("status", [0, 1, 2, 77])
def test_the_exit_status_is_the_commands(status: int, tmp_path: Path) -> None:
    assert run("-q", "--dir", str(tmp_path), "--", "sh", "-c", f"exit {status}").returncode == status


def test_options_of_the_command_are_its_own(tmp_path: Path) -> None:
    for dashes in ([], ["--"]):
        done = run("-q", "--dir", str(tmp_path), *dashes, "echo", "--dir", "x", "--dry-run", "--", "-v", "a b")
        assert (done.stdout, done.stderr) == ("--dir x --dry-run -- -v a b\n", "")


def test_it_is_the_same_process_and_signals_reach_it(tmp_path: Path) -> None:
    code = (
        "import signal, time, os; print(os.getpid(), signal.getsignal(2) is signal.SIG_IGN, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", CODE, "run", "-q", "--dir", str(tmp_path), "--", sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env=CLEAN,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == f"{process.pid} False\n"
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
        assert time.monotonic() - begin < 5


def test_signals_that_python_ignores_are_not_ignored_in_the_command(tmp_path: Path) -> None:
    done = run("-q", "--dir", str(tmp_path), "--", "grep", "SigIgn", "/proc/self/status")
    ignored = int(done.stdout.split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))


def test_a_dry_run_prints_what_a_shell_can_take_and_does_nothing(tmp_path: Path) -> None:
    place = tmp_path / "with space"
    done = run("--dry-run", "--dir", str(place))
    assert done.returncode == 0
    assert not place.exists()
    script = f'{done.stdout}\nprintf "%s" "$TORCH_FR_DUMP_TEMP_FILE"; test -d "$(dirname "$TORCH_FR_DUMP_TEMP_FILE")"'
    shell = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, env=CLEAN)
    assert (shell.returncode, shell.stdout) == (0, f"{place}/nccl_trace_rank_")


def test_by_default_each_job_has_a_directory_of_its_own() -> None:
    first, second = (run("--dry-run").stdout for _ in range(2))
    assert first != second
    assert (
        f"/tmp/nccl-dumps-{os.getuid()}-slurm-9.0/pipe_rank_"
        in run("--dry-run", SLURM_JOB_ID="9", SLURM_STEP_ID="0").stdout
    )


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ([], 2, "no command is given"),
        (["--", "no-such-command-anywhere"], 127, "cannot run no-such-command-anywhere"),
        (["--", "/etc/passwd"], 126, "cannot run /etc/passwd"),
    ],
)
def test_what_cannot_be_run_is_two_lines(arguments: list[str], status: int, says: str, tmp_path: Path) -> None:
    done = run("-q", "--dir", str(tmp_path), *arguments)
    what, advice = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (status, "")
    assert says in what
    assert advice.startswith("  -> ")


def test_a_directory_that_cannot_be_made_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("-q", "--dir", str(tmp_path / "file" / "x"), "--", "echo", "started")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot make" in done.stderr


def test_a_directory_that_somebody_else_has_put_there_is_refused(tmp_path: Path) -> None:
    """A link in /tmp, to a place where the user may write."""
    name = f"slurm-test{os.getpid()}"
    link = Path(f"/tmp/nccl-dumps-{os.getuid()}-{name}")
    link.symlink_to(tmp_path)
    try:
        done = run("-q", "--", "echo", "started", SLURM_JOB_ID=f"test{os.getpid()}")
    finally:
        link.unlink()
    assert (done.returncode, done.stdout) == (2, "")
    assert "somebody else" in done.stderr
