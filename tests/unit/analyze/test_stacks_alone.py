"""What follows from stacks that a person took, and what does not."""

import pytest

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.frames import Frame
from ncclprobe.model.records import Evidence
from ncclprobe.model.report import Cause, Confidence, Report
from tests.evidence import both_looks, evidence, in_backward, in_collective, source
from tests.unit.analyze.stack_texts import GDB_OF_A_GIL_CYCLE, LOADER, REDUCE, TRAIN, loose, py_spy

BACKWARD = "_engine_run_backward (torch/autograd/graph.py:825)\n    backward (torch/_tensor.py:581)"
RECV = (
    "recv (torch/distributed/distributed_c10d.py:2480)\n    recv_object (sglang/srt/distributed/parallel_state.py:1050)"
)
NINJA = "_try_wait (subprocess.py:2011)\n    run (subprocess.py:550)\n    run_ninja (flashinfer/jit/cpp_ext.py:256)"
TRACKER = "wait (threading.py:327)\n    wait_or (wandb/sdk/mailbox/mailbox_handle.py:122)\n    log (my_hook.py:9)"
WORKER = (
    "read (my_data.py:41)\n    fetch (torch/utils/data/_utils/fetch.py:52)\n"
    "    _worker_loop (torch/utils/data/_utils/worker.py:349)"
)
GATHER = (
    "synchronize (torch/cuda/streams.py:224)\n"
    "    fetch_sub_module (deepspeed/runtime/zero/partitioned_param_coordinator.py:332)"
)


def report(files: dict[str, str]) -> Report:
    return analyze(Evidence(stacks=loose(files)))


def ranks(count: int, text: str, but: int | None = None) -> dict[str, str]:
    return {f"py-spy-rank{rank}.txt": py_spy(text, TRAIN, pid=50 + rank) for rank in range(count) if rank != but}


@pytest.mark.parametrize(
    ("odd", "others", "cause", "confidence"),
    [
        (LOADER, REDUCE, Cause.STUCK_IN_DATALOADER, Confidence.PROBABLE),
        (TRACKER, BACKWARD, Cause.STUCK_IN_LOGGING, Confidence.PROBABLE),
        (NINJA, RECV, Cause.STUCK_IN_COMPILE, Confidence.PROBABLE),
        ("compute (my_model.py:4)", REDUCE, Cause.STUCK_IN_PYTHON, Confidence.POSSIBLE),
        ("wait (threading.py:331)", REDUCE, Cause.STUCK_ON_LOCK, Confidence.POSSIBLE),
        ("wait (threading.py:331)\n    _shutdown (threading.py:1500)", REDUCE, Cause.RANK_EXITED, Confidence.POSSIBLE),
    ],
)
def test_the_one_outside_every_collective(odd: str, others: str, cause: Cause, confidence: Confidence) -> None:
    verdict = report({**ranks(4, others, but=2), "py-spy-rank2.txt": py_spy(odd, TRAIN)}).verdict
    assert (verdict.cause, verdict.guilty_ranks, verdict.confidence) == (cause, (2,), confidence)
    assert verdict.victims == "0-1,3"


def test_of_stages_that_wait_for_the_one_before_the_first_is_the_root() -> None:
    files = {f"rank{n}.txt": py_spy(RECV, pid=n + 9) for n in (1, 2, 3)}
    verdict = report({**files, "rank0.txt": py_spy(NINJA, "event_loop_pp (sglang/srt/managers/s.py:8)")}).verdict
    assert (verdict.cause, verdict.guilty_ranks, verdict.victims) == (Cause.STUCK_IN_COMPILE, (0,), "1-3")
    assert verdict.where[0].function == "run_ninja"


def test_a_worker_that_reads_says_where_and_makes_up_for_ranks_not_seen() -> None:
    files = {f"rank{rank}.txt": py_spy(REDUCE, TRAIN, pid=50 + rank) for rank in (0, 2, 6)}
    files["rank3.txt"] = py_spy(LOADER, TRAIN, pid=53)
    assert report(files).verdict.confidence is Confidence.POSSIBLE
    files["rank3-worker99.txt"] = py_spy(WORKER, TRAIN, pid=99)
    verdict = report(files).verdict
    assert (verdict.cause, verdict.guilty_ranks) == (Cause.STUCK_IN_DATALOADER, (3,))
    assert verdict.confidence is Confidence.PROBABLE
    assert [(place.file, place.line) for place in verdict.where] == [("train.py", 8), ("my_data.py", 41)]
    assert any(citation.artifact == "rank3-worker99.txt" for citation in verdict.evidence)


def test_a_rank_that_locked_itself_out() -> None:
    snapshot = py_spy("_snapshot (torch/cuda/memory.py:1014)", TRAIN, pid=1312, state="idle+gil")
    files = {"py-spy-rank1.txt": py_spy(BACKWARD, TRAIN), "py-spy-rank2.txt": snapshot}
    verdict = report({**files, "gdb-rank2.txt": GDB_OF_A_GIL_CYCLE}).verdict
    assert (verdict.cause, verdict.guilty_ranks, verdict.confidence) == (Cause.STUCK_ON_LOCK, (2,), Confidence.PROBABLE)
    assert {citation.artifact for citation in verdict.evidence} >= {"py-spy-rank2.txt", "gdb-rank2.txt"}


def test_nobody_is_named_when_nobody_is_seen_to_wait_for_others() -> None:
    sync = "synchronize (torch/cuda/streams.py:224)"
    serve = "recv_requests (sglang/srt/managers/scheduler.py:9)"
    for files in (
        {**ranks(4, sync, but=2), "rank2.txt": py_spy("compute (m.py:4)", TRAIN)},
        {**ranks(4, serve, but=2), "rank2.txt": py_spy(LOADER, TRAIN)},
        {**ranks(4, REDUCE, but=2), "rank2.txt": py_spy(serve)},
        ranks(4, LOADER),
        ranks(4, REDUCE),
    ):
        verdict = report(files).verdict
        assert (verdict.cause, verdict.guilty_ranks) == (Cause.INCONCLUSIVE, ())


def test_c_code_on_a_cpu_may_be_a_wait_for_the_gpu() -> None:
    """A rank at `loss.item()` looks as one that computes: only ranks that are inside calls show who is missing."""
    odd = {"rank2.txt": py_spy(TRAIN, state="active")}
    verdict = report({**ranks(4, BACKWARD, but=2), **odd}).verdict
    assert (verdict.cause, verdict.guilty_ranks) == (Cause.INCONCLUSIVE, ())
    named = report({**ranks(4, REDUCE, but=2), **odd}).verdict
    assert (named.guilty_ranks, named.confidence) == ((2,), Confidence.POSSIBLE)
    assert "--native" in named.against[0].says
    holding = {"rank2.txt": py_spy(TRAIN, state="active+gil")}
    assert report({**ranks(4, BACKWARD, but=2), **holding}).verdict.guilty_ranks == (2,)


@pytest.mark.parametrize("line", ["print(loss.item())", "x = loss.cpu()", "work.wait()", "torch.cuda.synchronize()"])
def test_the_source_shows_that_a_line_waits(line: str) -> None:
    places = {2: (Frame("train", "/home/user/train.py", 2),), **dict.fromkeys((0, 1, 3), in_backward(1))}
    shown = source(f"loss.backward()\n{line}\n")
    assert analyze(evidence(hosts=(), stacks=both_looks(places), source_files=shown)).verdict.guilty_ranks == ()
    other = source("loss.backward()\ncompute(loss)\n")
    assert analyze(evidence(hosts=(), stacks=both_looks(places), source_files=other)).verdict.guilty_ranks == (2,)


def test_gathers_of_different_parameters_part_the_minority() -> None:
    files = ranks(4, f"{GATHER}\n    forward (transformers/m.py:871)\n    forward (transformers/m.py:2204)", but=2)
    files["py-spy-rank2.txt"] = py_spy(GATHER, "forward (transformers/m.py:2239)", TRAIN)
    verdict = report(files).verdict
    assert (verdict.cause, verdict.guilty_ranks, verdict.confidence) == (
        Cause.COLLECTIVE_DESYNC,
        (2,),
        Confidence.POSSIBLE,
    )
    assert [place.line for place in verdict.where] == [2239, 2204]
    halves = {**ranks(4, GATHER), **{k: v.replace("m.py", "n.py") for k, v in list(files.items())[:2]}}
    assert report(halves).verdict.guilty_ranks == ()


def test_other_collectives_at_different_places_name_nobody() -> None:
    """Where groups differ the minority can be the victim of one of the others."""
    places = {0: in_collective("all_reduce", 4), **{rank: in_collective("all_reduce", 9) for rank in (1, 2, 3)}}
    verdict = analyze(evidence(hosts=(), stacks=both_looks(places))).verdict
    assert (verdict.cause, verdict.guilty_ranks) == (Cause.INCONCLUSIVE, ())
