"""Mutated lines, in any order: nothing is raised, little is kept, and no line takes long."""

import time
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncclprobe.model.log import LogEvent
from ncclprobe.parse.log import crashes, hosts, launchers, program, ray_lines, schedulers, tracebacks
from ncclprobe.parse.log import settings as settings_
from ncclprobe.parse.log.line import LogLine

MODULES = [crashes, hosts, launchers, program, ray_lines, schedulers, settings_, tracebacks]
SEEDS = [
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 12, in <module>',
    "torch.OutOfMemoryError: CUDA out of memory.",
    "During handling of the above exception, another exception occurred:",
    "-- Process 2 terminated with the following error:",
    "  | ExceptionGroup: x (2 sub-exceptions)",
    '{"message": {"message": "x", "extraInfo": {"py_callstack": "Traceback (most recent call last):"}}}',
    "terminate called after throwing an instance of 'c10::Error'",
    "  what():  CUDA error",
    "Fatal Python error: Segmentation fault",
    "Current thread 0x00007f02 (most recent call first):",
    "Root Cause (first observed failure):",
    "  rank      : 13 (local_rank: 5)",
    "  exitcode  : -9 (pid: 59246)",
    "  time      : 2026-03-30_16:20:45",
    "  traceback : Signal 9 (SIGKILL) received by PID 59246",
    "failed (exitcode: -9) local_rank: 5 (pid: 59246) of binary: x",
    "  Process name: [[63527,1],3]",
    "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
    "srun: error: node[01-02]: tasks 0-2,7: Exited with exit code 1",
    "slurmstepd: error: *** STEP 123.0 ON node01 CANCELLED AT 2026-03-01T10:00:00 DUE TO TIME LIMIT ***",
    "    Last State:     Terminated",
    "      Exit Code:    137",
    "Worker PID: 7 Worker exit type: SYSTEM_ERROR Worker exit detail: x",
    "Tokenizing Prompts (num_proc=32):   0%|          | 0/283110 [00:00<2:02:52, 38.40 examples/s]",
    "Epoch 3 step 4000/12000 loss=1.4",
    "[rank 3] dataset exhausted after 31 batches, training done, exiting",
    "+ torchrun --nnodes 2 --nproc-per-node 4 --node-rank 1 train.py",
    "node02 rank 4: RANK=4 WORLD_SIZE=8 MASTER_ADDR=localhost",
    "NODELIST   NODES PARTITION STATE ",
    "node03         1      gpu* down* ",
    "--- node03 ping statistics ---",
    "-rw-r--r-- 1 train train 2161494 Sep 14 06:19 comm_lib_trace_rank_0",
]


@st.composite
def lines(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 6))
        new = draw(
            st.one_of(st.text(max_size=6), st.sampled_from(["[", "]", "-", "999999999999", "\x1b[0m", ": ", "\ud800"]))
        )
        text = text[:at] + new + text[at + cut :]
    return text


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rsplit(".", 1)[-1])
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.tuples(lines(), st.sampled_from(["", "a", "b"])), max_size=25))
def test_any_lines_in_any_order(module: ModuleType, texts: list[tuple[str, str]]) -> None:
    recognizer = module.RECOGNIZER()
    events = []
    for number, (text, speaker) in enumerate(texts, 1):
        events.extend(recognizer.feed(LogLine(number=number, text=text, speaker=speaker, rank=len(speaker))))
    events.extend(recognizer.end())
    assert all(isinstance(event, LogEvent) and 1 <= event.line <= len(texts) for event in events)
    assert all(event.rank is None or 0 <= event.rank < 10**8 for event in events)
    assert list(recognizer.end()) == []  # told once


PARTS = ["a", "a.", "1", " ", "A1", "-", "(", "a b ", "node[1,", "trace_rank_", "rank 1 ", "x=", "]: ", "saving "]
LONG = [part * (50_000 // len(part)) for part in PARTS]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rsplit(".", 1)[-1])
@pytest.mark.parametrize("seed", ["", *SEEDS[::3]])
def test_long_lines_take_bounded_time(module: ModuleType, seed: str) -> None:
    recognizer = module.RECOGNIZER()
    start = time.process_time()
    for number, long in enumerate(LONG):
        list(recognizer.feed(LogLine(number=number, text=seed + long)))
        list(recognizer.feed(LogLine(number=number, text=long + seed)))
    list(recognizer.end())
    assert time.process_time() - start < 2.5


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rsplit(".", 1)[-1])
def test_needles_are_plain_words(module: ModuleType) -> None:
    assert all(isinstance(needle, bytes) and len(needle) >= 3 for needle in (*module.NEEDLES, *module.BLOCK_NEEDLES))
