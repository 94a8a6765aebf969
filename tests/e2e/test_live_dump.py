"""Real torch ranks on gloo, asked for their recorders: a stuck job answers, a healthy one does not notice."""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from ncclprobe.model.collectives import Recording
from ncclprobe.parse import flight_recorder
from ncclprobe.probe.live_dump import LiveDump, LiveDumpRefusedError, ask
from tests.asked_processes import Asked, asked, guardians, left_behind, libraries, wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_spec("torch") is None and not os.environ.get("CI"), reason="needs torch"),
]

# Two ranks: rank 0, whose input and exit status we hold, and its child.
JOB = """
import os, select, sys, time
import torch
import torch.distributed as dist
torch.set_num_threads(1)
child = os.fork()
rank = 0 if child else 1
dist.init_process_group("gloo", store=dist.FileStore({store!r}, 2), rank=rank, world_size=2)
def sum_over_ranks(number):
    tensor = torch.full((1000,), float(number))
    dist.all_reduce(tensor)
    return tensor
def say_ready():
    dist.barrier()
    if rank == 0:
        print("ready", flush=True)
{body}
dist.destroy_process_group()
assert "torch._inductor" not in sys.modules
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

STUCK = """
for step in range(3):
    sum_over_ranks(step)
say_ready()
if rank == 1:
    sys.stdin.readline()
assert sum_over_ranks(rank)[0] == 1
if rank == 0:
    print("went on")
"""

HEALTHY = """
say_ready()
step, is_over = 0, False
while not is_over:
    assert bool((sum_over_ranks(step + rank) == 2 * step + 1).all())
    is_over = bool(sum_over_ranks(rank == 0 and len(select.select([sys.stdin], [], [], 0.005)[0]))[0])
    step += 1
if rank == 0:
    print(step > 50)
"""


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    files, processes = left_behind(), guardians()
    yield
    assert wait_until(lambda: left_behind() <= files)
    assert wait_until(lambda: guardians() <= processes)


def job(body: str, directory: Path) -> str:
    return JOB.format(store=str(directory / "store"), body=body)


def ranks(process: Asked) -> tuple[int, int]:
    return process.process.pid, process.pid


def recording(answer: LiveDump) -> Recording:
    assert answer.problems == ()
    assert set(answer.dumps) == {"c10d"}
    parsed = flight_recorder.parse(answer.dumps["c10d"])
    assert parsed.problems == ()
    return parsed.records[0]


def all_reduces(record: Recording) -> list[bool]:
    """Of each all_reduce, oldest first, whether it is complete."""
    return [call.is_completed for call in record.calls() if call.signature.op == "all_reduce"]


def test_a_stuck_job_answers_and_lives_on(tmp_path: Path) -> None:
    with asked(job(STUCK, tmp_path), python=sys.executable) as process:
        answers = [ask(pid, libraries()) for pid in ranks(process)]
        waits, is_late = (recording(answer) for answer in answers)

        assert all_reduces(waits) == [True, True, True, False]
        assert all_reduces(is_late) == [True, True, True]
        last = list(waits.calls())[-1]
        assert [frame.function for frame in last.stack if frame.file == "<string>"] == ["sum_over_ranks", "<module>"]
        assert all(answer.thread.startswith("pt_gloo_runloop") for answer in answers)
        assert process.finish() == "went on\n"


def test_a_healthy_job_is_asked_twenty_times_and_ends_well(tmp_path: Path) -> None:
    answered, refusals = 0, []
    with asked(job(HEALTHY, tmp_path), python=sys.executable) as process:
        for attempt in range(20):
            pid = ranks(process)[attempt % 2]
            try:
                answered += len(recording(ask(pid, libraries()))) > 0
            except LiveDumpRefusedError as refusal:  # every thread may be at work at that moment
                refusals.append(str(refusal))
        assert all("no thread" in refusal for refusal in refusals)
        assert answered >= 5
        assert process.finish() == "True\n"
