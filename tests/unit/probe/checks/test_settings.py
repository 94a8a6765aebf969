"""What leaves a host of a rank's environment, and what is seen of the places torch will write to."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from ncclprobe.model.checkup import Check, CheckState, RankSettings
from ncclprobe.parse import checkup
from ncclprobe.probe.checks.settings import SOURCE
from tests.unit.probe.processes import NOBODY, running
from tests.unit.probe.sources.context import collect, context, process


def look(environ: dict[str, str]) -> tuple[RankSettings, list[Check]]:
    with running(environ=environ) as pid:
        (item,), gaps = collect(SOURCE, context(process(pid, 3)))
    assert not gaps
    parsed = checkup.parse(item.data)
    assert not parsed.problems
    (rank,) = [one for one in parsed.records if isinstance(one, RankSettings)]
    return rank, [one for one in parsed.records if isinstance(one, Check)]


def test_only_variables_of_torch_nccl_and_the_launcher_leave_the_host() -> None:
    environ = {"NCCL_ALGO": "Ring", "TORCH_FR_BUFFER_SIZE": "1", "AWS_SECRET_ACCESS_KEY": "s", "MY_NCCL_X": "1"}
    rank, _ = look(environ)
    assert (rank.host, rank.rank) == ("node1", 3)
    assert environ["NCCL_ALGO"] == rank.variables["NCCL_ALGO"]
    assert not {"AWS_SECRET_ACCESS_KEY", "MY_NCCL_X", "PATH"} & rank.variables.keys()


def test_the_place_of_the_dumps(tmp_path: Path) -> None:
    rank, _ = look({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/x_"})
    assert rank.dumps is not None
    assert (rank.dumps.path, rank.dumps.is_there, rank.dumps.is_writable) == (str(tmp_path), True, True)
    assert rank.dumps.free_bytes
    rank, _ = look({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/none/x_"})
    assert rank.dumps is not None
    assert not rank.dumps.is_there


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_whether_the_rank_may_write_there_and_not_whether_we_may() -> None:
    shell = ("/bin/sh", "-c")  # which another user may run, other than this Python
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with running(
            "echo ready; exec sleep 600",
            command=shell,
            environ={"TORCH_FR_DUMP_TEMP_FILE": f"{folder}/x_"},
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd="/",
        ) as pid:
            (item,), _ = collect(SOURCE, context(process(pid, 3)))
    (rank,) = [one for one in checkup.parse(item.data).records if isinstance(one, RankSettings)]
    assert rank.dumps is not None
    assert (rank.dumps.is_there, rank.dumps.is_writable) == (True, False)


@pytest.mark.parametrize(
    ("name", "state"), [("pipe_3.pipe", CheckState.OK), ("pipe_4.pipe", CheckState.LIMITED)], ids=str
)
def test_whether_torch_has_made_the_pipe(tmp_path: Path, name: str, state: CheckState) -> None:
    os.mkfifo(tmp_path / name)
    _, (check,) = look({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe_"})
    assert (check.name, check.state) == ("dump_pipe", state)


def test_a_job_without_pipes_and_no_job() -> None:
    _, (check,) = look({})
    assert check.state is CheckState.ABSENT
    (item,), _ = collect(SOURCE, context())
    assert json.loads(item.data) == {"checks": [], "ranks": []}
