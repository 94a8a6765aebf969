"""What follows from logs alone: the truth of each is in its name, and nobody else is blamed."""

from pathlib import Path

import pytest

from ncclprobe.model.report import Cause, Confidence, Report
from tests.log_text import answer, clock, init, report_on, says, timeout, timeouts, traceback, warn

WORLD = "world_size=4\n"


def verdict(report: Report) -> tuple[str, tuple[int, ...], str]:
    return str(report.verdict.cause), report.verdict.guilty_ranks, str(report.verdict.confidence)


def test_a_rank_whose_counters_end_before_the_call_did_not_issue_it(tmp_path: Path) -> None:
    report = report_on(tmp_path, train_log=timeouts((1, 2, 3), 50) + answer(0, 49, asked_by=1))
    assert verdict(report) == ("stuck-in-python", (0,), "probable")
    assert report.verdict.victims == "1-3"
    on = report.verdict.blocked_on
    assert on is not None
    assert (on.group, on.seq, on.op, on.timeout_s) == ("default_pg", 50, "all_reduce", 600.0)


def test_what_that_rank_said_last_tells_why(tmp_path: Path) -> None:
    log = says(0, "saving checkpoint to /ckpt/100", at=2) + timeouts((1, 2, 3), 50) + answer(0, 49, asked_by=1)
    assert verdict(report_on(tmp_path, train_log=log)) == ("stuck-in-checkpoint", (0,), "probable")


def test_work_that_goes_on_past_a_short_timeout_is_slow_not_stuck(tmp_path: Path) -> None:
    done = "".join(says(0, f"consolidated {n}/24 files of the checkpoint", at=n * 8) for n in range(1, 20))
    log = timeouts((1, 2, 3), 50, at=60, limit_ms=60_000) + answer(0, 49, asked_by=1, at=61) + done
    assert verdict(report_on(tmp_path, train_log=log))[:2] == ("timeout-too-short", (0,))


def test_a_silent_rank_is_a_suspect_and_is_not_named(tmp_path: Path) -> None:
    report = report_on(tmp_path, train_log=WORLD + timeouts((0, 1, 3), 50))
    assert verdict(report) == ("inconclusive", (), "possible")
    assert "Rank 2" in report.verdict.summary


def test_rank_0_exists_though_no_line_says_so(tmp_path: Path) -> None:
    assert verdict(report_on(tmp_path, train_log=timeouts((1, 2, 3), 50)))[:2] == ("inconclusive", ())


def test_all_in_step_is_nobodys_fault(tmp_path: Path) -> None:
    assert verdict(report_on(tmp_path, train_log=WORLD + timeouts(range(4), 50)))[:2] == ("collective-stalled", ())


@pytest.mark.parametrize(
    ("odd", "cause"),
    [
        (timeout(3, 50, "ALLREDUCE", 1000), Cause.COLLECTIVE_SHAPE_MISMATCH),
        (timeout(3, 50, "BROADCAST", 1024), Cause.COLLECTIVE_OP_MISMATCH),
        (timeout(3, 50, "ALLREDUCE", 1), Cause.COLLECTIVE_DESYNC),
    ],
)
def test_another_call_under_the_same_number(tmp_path: Path, odd: str, cause: Cause) -> None:
    report = report_on(tmp_path, train_log=WORLD + timeouts(range(3), 50) + odd)
    assert verdict(report) == (str(cause), (3,), "probable")


def test_without_a_majority_nobody_is_named(tmp_path: Path) -> None:
    log = WORLD + timeouts((0, 1), 50, size=10) + timeouts((2, 3), 50, size=20)
    assert report_on(tmp_path, train_log=log).verdict.guilty_ranks == ()


@pytest.mark.parametrize(
    ("op", "sizes"),
    [("ALLTOALL_BASE", (1, 2, 3, 4)), ("COALESCED", (18446744073709551615,) * 4)],
)
def test_sizes_that_may_differ_are_no_mismatch(tmp_path: Path, op: str, sizes: tuple[int, ...]) -> None:
    log = "".join(timeout(rank, 50, op, size) for rank, size in enumerate(sizes))
    assert verdict(report_on(tmp_path, train_log=WORLD + log))[:2] == ("collective-stalled", ())


def test_the_root_of_a_gather_has_another_output(tmp_path: Path) -> None:
    log = timeout(0, 50, "GATHER", 8, out=32) + "".join(timeout(rank, 50, "GATHER", 8, out=0) for rank in (1, 2, 3))
    assert verdict(report_on(tmp_path, train_log=WORLD + log))[:2] == ("collective-stalled", ())


def test_the_root_of_a_broadcast_may_be_ahead(tmp_path: Path) -> None:
    log = WORLD + timeouts((1, 2), 50, "BROADCAST") + timeout(0, 52, "_ALLGATHER_BASE")
    report = report_on(tmp_path, train_log=log)
    assert verdict(report)[:2] == ("inconclusive", ())
    assert "3" in report.verdict.summary


def test_two_ranks_apart_are_both_in_it(tmp_path: Path) -> None:
    log = "world_size=2\n" + timeout(0, 50, "_ALLGATHER_BASE") + timeout(1, 52, "_ALLGATHER_BASE")
    assert verdict(report_on(tmp_path, train_log=log)) == ("collective-desync", (0, 1), "probable")


def test_the_first_exception_is_the_cause_and_the_timeouts_follow(tmp_path: Path) -> None:
    log = WORLD + traceback(2, "ValueError: row 3 has 4095 tokens") + timeouts((0, 1, 3), 50)
    report = report_on(tmp_path, train_log=log)
    assert verdict(report) == ("rank-crashed", (2,), "probable")
    assert report.verdict.where[0].file == "/app/train.py"


def test_an_exception_after_the_own_timeout_is_an_echo(tmp_path: Path) -> None:
    log = WORLD + timeouts((1, 2, 3), 50) + traceback(2, "ValueError: bad size")
    assert report_on(tmp_path, train_log=log).verdict.guilty_ranks == ()


def test_lost_connections_are_echoes(tmp_path: Path) -> None:
    echo = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
    log = WORLD + "".join(traceback(rank, echo) for rank in (0, 1, 3))
    assert report_on(tmp_path, train_log=log).verdict.guilty_ranks == ()


def test_a_fault_of_the_gpu_is_not_the_programs(tmp_path: Path) -> None:
    log = WORLD + traceback(2, "RuntimeError: CUDA error: uncorrectable ECC error encountered") + timeouts((0, 1, 3), 9)
    assert verdict(report_on(tmp_path, train_log=log))[:2] == ("gpu-fault", (2,))


def test_ranks_that_left_in_good_order(tmp_path: Path) -> None:
    left = "".join(says(rank, "cleaning up, destroy_process_group()", at=5) for rank in (0, 2))
    report = report_on(tmp_path, train_log=WORLD + left + timeouts((1, 3), 50))
    assert verdict(report) == ("rank-exited", (0, 2), "probable")


def test_who_never_started_the_communicator(tmp_path: Path) -> None:
    log = "".join(init(rank, 8, is_complete=False) for rank in range(8) if rank != 5)
    assert verdict(report_on(tmp_path, train_log=log)) == ("rank-never-joined", (5,), "probable")


def test_an_older_library_on_one_host(tmp_path: Path) -> None:
    def host(number: int, version: str, ranks: tuple[int, ...]) -> str:
        lines = "".join(init(rank, 6, host=f"node{number}", is_complete=False) for rank in ranks)
        return f"NCCL version {version}+cuda12.4\n{lines}"

    text = "ncclSocketInit: connecting to address with family 0 is neither AF_INET(2) nor AF_INET6(10)"
    report = report_on(
        tmp_path,
        node1_log=host(1, "2.20.5", (0, 1)),
        node2_log=host(2, "2.19.3", (2, 3)) + warn(2, text, host="node2"),
        node3_log=host(3, "2.20.5", (4, 5)),
    )
    assert verdict(report) == ("init-misconfigured", (2, 3), "probable")


def test_ports_of_one_host_that_report_errors(tmp_path: Path) -> None:
    hosts = {1: (0, 1), 2: (2, 3)}
    text = {n: "".join(init(rank, 4, host=f"node{n}") for rank in ranks) for n, ranks in hosts.items()}
    bad = "".join(
        warn(2 + n, f"NET/IB : mlx5_{n}:1 Got non-fatal async event: port error(10)", host="node2") for n in (0, 1)
    )
    report = report_on(tmp_path, node1_log=text[1], node2_log=text[2] + bad, train_log=timeouts(range(4), 50))
    assert verdict(report) == ("network-fault", (2, 3), "probable")


def test_what_one_file_says_twice_changes_nothing(tmp_path: Path) -> None:
    log = timeouts((1, 2, 3), 50) + answer(0, 49, asked_by=1)
    assert verdict(report_on(tmp_path, train_log=log)) == verdict(report_on(tmp_path, train_log=log + log))


def test_a_log_that_says_nothing_is_a_gap_and_the_verdict_says_what_to_give(tmp_path: Path) -> None:
    report = report_on(tmp_path, notes_txt="nothing of interest\n" * 3)
    assert report.verdict.cause is Cause.INCONCLUSIVE
    assert report.verdict.confidence is Confidence.POSSIBLE
    assert [gap.what for gap in report.gaps] == ["1 logs not used, the first being notes.txt"]


def test_a_later_attempt_is_another_job(tmp_path: Path) -> None:
    restart = "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
    log = WORLD + traceback(1, "ValueError: bad") + restart + timeouts((1, 2, 3), 50) + answer(0, 49, asked_by=1)
    assert verdict(report_on(tmp_path, train_log=log))[1] == (0,)


def test_the_same_words_of_several_ranks_have_one_reason(tmp_path: Path) -> None:
    text = "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'"
    log = WORLD + traceback(3, text) + traceback(2, text) + timeouts((0, 1), 50)
    assert verdict(report_on(tmp_path, train_log=log))[:2] == ("rank-crashed", (2, 3))


def test_an_exception_nobody_signed_is_of_the_rank_that_did_not_wait(tmp_path: Path) -> None:
    trace = 'Traceback (most recent call last):\n  File "/app/train.py", line 9, in f\n    g()\nKeyError: 1\n'
    log = WORLD + trace + timeouts((0, 1, 3), 50)
    assert verdict(report_on(tmp_path, train_log=log)) == ("rank-crashed", (2,), "possible")
    went_on = WORLD + trace + "step 3 loss 1.0\n" + timeouts((0, 1, 3), 50)
    assert report_on(tmp_path, train_log=went_on).verdict.guilty_ranks == ()


def test_a_work_that_is_over_is_not_what_a_rank_does(tmp_path: Path) -> None:
    log = says(0, "checkpoint saved in 3 s", at=2) + timeouts((1, 2, 3), 50) + answer(0, 49, asked_by=1)
    assert verdict(report_on(tmp_path, train_log=log))[:2] == ("stuck-in-python", (0,))


def test_a_line_nobody_signed_is_not_of_the_silent_rank(tmp_path: Path) -> None:
    log = WORLD + "Saving model checkpoint to out/1\n" + timeouts((0, 1, 2), 50)
    assert report_on(tmp_path, train_log=log).verdict.guilty_ranks == ()


def test_ranks_of_a_smaller_group_are_not_those_of_the_job(tmp_path: Path) -> None:
    barrier = "RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 3000 ms"
    log = WORLD + traceback(2, barrier)
    assert report_on(tmp_path, train_log=log).verdict.guilty_ranks == ()
    assert report_on(tmp_path, train_log=WORLD + traceback(0, barrier)).verdict.guilty_ranks == (1,)


def test_of_two_silent_ranks_only_the_one_that_shows_what_it_does(tmp_path: Path) -> None:
    log = WORLD + says(2, "tokenizing shard 3", at=2) + timeouts((0, 1), 50)
    assert 3 not in report_on(tmp_path, train_log=log).verdict.guilty_ranks


def test_stacks_of_an_interrupt_count_when_the_job_stood_still(tmp_path: Path) -> None:
    def stack(rank: int, file: str, function: str) -> str:
        lines = ("Traceback (most recent call last):", f'  File "{file}", line 5, in {function}', "KeyboardInterrupt")
        return "".join(f"[rank{rank}]: {line}\n" for line in lines)

    def log(interrupted_at: float) -> str:
        steps = "".join(says(rank, "step 3 loss 1.0") for rank in range(4))
        end = f"W0{clock(interrupted_at)} 7 torch/x.py:1] Received Signals.SIGINT death signal, shutting down workers\n"
        waits = "".join(
            stack(r, "/e/site-packages/torch/distributed/distributed_c10d.py", "all_reduce") for r in (0, 1, 3)
        )
        return (
            WORLD + steps + end + waits + stack(2, "/e/site-packages/torch/utils/data/dataloader.py", "_try_get_data")
        )

    assert verdict(report_on(tmp_path, train_log=log(3_600)))[:2] == ("stuck-in-dataloader", (2,))
    assert report_on(tmp_path, train_log=log(20)).verdict.guilty_ranks == ()


def test_the_rank_that_gloo_ends_received_too_much_and_is_not_blamed(tmp_path: Path) -> None:
    error = (
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        "  what():  [enforce fail at gloo/transport/tcp/pair.cc:458] op.preamble.length <= op.nbytes. 668 vs 12. "
        "Received data size doesn't match expected size. Is there a mismatch in the size of collective inputs?\n"
    )
    log = WORLD + "".join(f"[rank0]: {line}\n" for line in error.splitlines())
    report = report_on(tmp_path, train_log=log)
    assert verdict(report)[:2] == ("collective-shape-mismatch", ())


def test_a_log_of_another_job_is_left_out_and_said(tmp_path: Path) -> None:
    ours = WORLD + timeouts((1, 2, 3), 50) + answer(0, 49, asked_by=1)
    other = "world_size=2\n" + timeouts((0, 1), 7, size=3)
    report = report_on(tmp_path, a_log=ours, b_log=ours.replace("\n", " \n"), c_log=other)
    assert verdict(report)[:2] == ("stuck-in-python", (0,))
    assert [gap.who for gap in report.gaps if "another job" in gap.why] == ["c.log"]


def test_a_rank_with_another_world_size_is_no_other_job(tmp_path: Path) -> None:
    wrong = "[rank3]: world_size=8\n" + timeout(3, 50)
    report = report_on(tmp_path, a_log=WORLD + timeouts((0, 1, 2), 50), b_log=wrong)
    assert not any("another job" in gap.why for gap in report.gaps)


def did_not_come(reporter: int, number: int) -> str:
    """Rank 0 of a group reports a number inside it."""
    return f"[rank{reporter}]: RuntimeError: [Rank 0]: Ranks {number} failed to pass monitoredBarrier in 30000 ms\n"


CAME = (
    "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please "
    "check rank 0 logs for faulty rank."
)


@pytest.mark.parametrize(
    ("log", "guilty"),
    [
        (did_not_come(0, 1), (1,)),
        (did_not_come(0, 1) + did_not_come(1, 1), ()),
        (did_not_come(0, 1) + did_not_come(2, 1), ()),
        (did_not_come(0, 1) + traceback(1, f"RuntimeError: {CAME}"), ()),
    ],
    ids=["the job's barrier", "of two groups, and 1 is in one", "of two groups", "1 came to it"],
)
def test_who_did_not_come_to_a_monitored_barrier(tmp_path: Path, log: str, guilty: tuple[int, ...]) -> None:
    assert report_on(tmp_path, train_log=WORLD + log).verdict.guilty_ranks == guilty
