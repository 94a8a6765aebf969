"""A job started by `ncclprobe run`: torchrun and a gloo rank for the doctor, ranks with a pipe for the collection."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from ncclprobe.bundle.reader import open_bundle
from ncclprobe.model.evidence import Kind
from ncclprobe.parse import flight_recorder
from tests.unit.probe.fake_proc import torchrun_environ
from tests.unit.probe.processes import is_gone, running, wait_until
from tests.unit.probe.sources.test_dump_pipe import MONITOR

pytestmark = pytest.mark.e2e
NCCLPROBE = [sys.executable, "-c", "from ncclprobe.cli.main import main; main()"]
RANK = """
import os, time, torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
open(f"{os.environ['READY']}.{dist.get_rank()}", "w").write(str(os.getpid()))
time.sleep(600)
"""


def run_id() -> str:
    return f"prepared-{uuid.uuid4().hex[:8]}"


def clean_environ(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "NCCL", "SLURM"))}
    return {**kept, **more}


@contextmanager
def job(name: str, folder: Path, **environ: str) -> Iterator["subprocess.Popen[str]"]:
    """A rank under torchrun under `ncclprobe run`, ended in the end; what torchrun leaves then is in the folder."""
    (folder / "train.py").write_text(RANK)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=1", f"--rdzv-id={name}", "--rdzv-backend=c10d"]
    command = [sys.executable, *torchrun, "--rdzv-endpoint=localhost:0", str(folder / "train.py")]
    with subprocess.Popen(
        [*NCCLPROBE, "run", "--dir", str(folder / "dumps"), "--", *command],
        env=clean_environ(READY=str(folder / "ready"), TMPDIR=str(folder), **environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            ready = folder / "ready.0"
            wait_until(lambda: ready.exists() and ready.read_text(), "the rank is ready", 60)
            yield process
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        finally:
            process.kill()
    wait_until(lambda: is_gone(int(ready.read_text())), "the rank has ended", 10)


@pytest.mark.skipif(find_spec("torch") is None and not os.environ.get("CI"), reason="needs torch")
def test_the_doctor_sees_what_run_has_set_and_what_is_wrong(tmp_path: Path) -> None:
    name = run_id()
    bad = {"NCCL_TIMEOUT": "1800", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}
    with job(name, tmp_path, **bad) as process:
        done = subprocess.run(
            [*NCCLPROBE, "doctor", "--job", name, "--format", "json"],
            capture_output=True,
            text=True,
            timeout=60,
            env=clean_environ(),
        )
    assert process.returncode not in (0, 2), "torchrun's own status, after a SIGTERM that reached it"
    checkup = json.loads(done.stdout)
    assert (done.returncode, checkup["is_clear"]) == (1, False), done.stderr
    assert checkup["settings_of"] == "1 rank"
    rules = {advice["rule"]: advice for advice in checkup["advice"]}
    assert (rules["dump-on-timeout-off"]["level"], rules["dump-on-timeout-off"]["ranks"]) == ("problem", [0])
    assert rules["nccl-timeout"]["level"] == "note"
    assert not {"recorder-off", "folder-missing", "no-pipe", "settings-differ"} & rules.keys()
    (host,) = checkup["hosts"]
    states = {check["name"]: check["state"] for check in host["checks"]}
    assert (states["ranks"], states["stacks"], states["rank_log"], states["room"]) == ("ok", "ok", "blocked", "ok")
    assert states["dump_pipe"] == "limited", "gloo makes no pipe"
    assert "processes" in states


def test_ranks_with_a_pipe_are_asked_through_it_by_default(tmp_path: Path) -> None:
    name = run_id()
    code = MONITOR.replace("environ_manner", "'good'")
    places = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe_",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/dump_",
    }
    environs = [torchrun_environ(rank, size=2, TORCHELASTIC_RUN_ID=name, **places) for rank in (0, 1)]
    with running(code, environ=environs[0]) as first, running(code, environ=environs[1]) as second:
        done = subprocess.run(
            [*NCCLPROBE, "collect", "--job", name, "--interval", "0.2", "-o", str(tmp_path / "bundle")],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert not is_gone(first)
        assert not is_gone(second)
    assert done.returncode == 0, done.stderr
    with open_bundle(tmp_path / "bundle") as bundle:
        dumps = {item.path: bundle.read(item) for item in bundle.manifest.items if item.kind is Kind.FLIGHT_RECORDER}
        (host,) = bundle.manifest.hosts
    assert sorted(dumps) == [f"hosts/localhost/dump_pipe/rank{rank}.pipe.dump" for rank in (0, 1)]
    assert all(flight_recorder.parse(data).records for data in dumps.values())
    pauses = {source.name: source.longest_pause_s for source in host.sources}
    assert pauses["dump_pipe"] == 0.0
    assert "live_dump" not in pauses
