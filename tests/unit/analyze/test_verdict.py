"""From evidence to the one verdict."""

import itertools

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.frames import Frame
from ncclprobe.model.kernel import OomKill
from ncclprobe.model.manifest import Outcome
from ncclprobe.model.records import Evidence, Sourced
from ncclprobe.model.report import Cause, Confidence, Status
from tests.evidence import (
    DATALOADER,
    NOW_NS,
    STEP_NS,
    TRAIN,
    both_looks,
    dumps,
    evidence,
    host,
    in_backward,
    in_collective,
    processes,
    recording,
    source,
    stacks,
)

SCRIPT = """\
def train(rank):
    loss.backward()
    if rank == 0:
        mean_over_ranks(loss)
"""
STEP = ["all_reduce:64@2"]
STUCK = {0: in_collective("all_gather", 4), **{rank: in_backward(2) for rank in (1, 2, 3)}}


def demo_dumps() -> dict[int, object]:
    return {0: recording(STEP * 9 + ["all_gather:1@4"]), **{rank: recording(STEP * 10) for rank in (1, 2, 3)}}


def demo(**parts: object) -> Evidence:
    whole = {
        "processes": processes(range(4), 4),
        "recordings": dumps(demo_dumps()),  # type: ignore[arg-type]
        "stacks": both_looks(STUCK),
        "source_files": source(SCRIPT),
    }
    return evidence(**{**whole, **parts})


def test_a_call_only_one_rank_makes_is_extra_and_certain_with_all_dumps() -> None:
    verdict = analyze(demo()).verdict
    assert (verdict.cause, verdict.guilty_ranks, verdict.confidence) == (
        Cause.COLLECTIVE_EXTRA,
        (0,),
        Confidence.CERTAIN,
    )
    assert verdict.victims == "1-3"
    assert verdict.guilty_hosts == ("node1",)
    assert verdict.blocked_on is not None
    assert (verdict.blocked_on.group, verdict.blocked_on.seq, verdict.blocked_on.op) == ("default_pg", 10, "all_gather")
    place = verdict.where[0]
    assert (place.rank, place.file, place.line) == (0, TRAIN, 4)
    assert place.source_line == "mean_over_ranks(loss)"
    assert place.condition == "if rank == 0 (line 3)"


def test_without_dumps_the_branch_proves_the_line_but_not_more_than_probable() -> None:
    verdict = analyze(demo(recordings=())).verdict
    assert (verdict.cause, verdict.guilty_ranks, verdict.confidence) == (
        Cause.COLLECTIVE_EXTRA,
        (0,),
        Confidence.PROBABLE,
    )
    assert (verdict.where[0].line, verdict.victims) == (4, "1-3")


def test_without_dumps_and_source_nobody_is_named() -> None:
    verdict = analyze(demo(recordings=(), source_files=())).verdict
    assert (verdict.cause, verdict.guilty_ranks) == (Cause.INCONCLUSIVE, ())
    assert "--live-dump" in verdict.next_steps[0]


def test_a_missing_dump_lowers_the_confidence_and_blames_nobody_else() -> None:
    recordings = demo_dumps()
    for left_out in range(4):
        kept = dumps({rank: made for rank, made in recordings.items() if rank != left_out})  # type: ignore[misc]
        verdict = analyze(demo(recordings=kept, stacks=())).verdict
        assert set(verdict.guilty_ranks) <= {0}
        assert verdict.confidence is not Confidence.CERTAIN


def test_two_ranks_heard_of_six_name_nobody_without_a_line_that_proves_it() -> None:
    heard = dumps({rank: made for rank, made in demo_dumps().items() if rank < 2})  # type: ignore[misc]
    few = {"processes": processes((0, 1), 6), "recordings": heard, "stacks": ()}
    assert analyze(demo(**few)).verdict.guilty_ranks == (0,)
    verdict = analyze(demo(**few, source_files=())).verdict
    assert (verdict.cause, verdict.guilty_ranks) == (Cause.INCONCLUSIVE, ())


def test_file_order_does_not_matter() -> None:
    reports = set()
    for order in itertools.permutations(dumps(demo_dumps())):  # type: ignore[arg-type]
        reports.add(repr(analyze(demo(recordings=order))))
    assert len(reports) == 1


def test_a_rank_in_the_data_loader_is_the_one_the_others_wait_for() -> None:
    loading = (Frame("_try_get_data", DATALOADER, 1200), Frame("__next__", DATALOADER, 700), Frame("train", TRAIN, 1))
    places = {2: loading, **{rank: in_collective("all_reduce", 2) for rank in (0, 1, 3)}}
    verdict = analyze(demo(recordings=(), stacks=both_looks(places))).verdict
    assert (verdict.cause, verdict.guilty_ranks, verdict.victims) == (Cause.STUCK_IN_DATALOADER, (2,), "0-1,3")
    assert verdict.confidence is Confidence.PROBABLE


def test_a_rank_that_waits_for_its_gpu_need_not_wait_for_others() -> None:
    waiting = (Frame("cuStreamSynchronize", "libcuda.so.1"), Frame("train", TRAIN, 2))
    places = {0: waiting, 1: (Frame("compute", TRAIN, 1),)}
    verdict = analyze(evidence(hosts=(), stacks=both_looks(places))).verdict
    assert (verdict.cause, verdict.guilty_ranks) == (Cause.INCONCLUSIVE, ())
    places[0] = in_collective("all_reduce", 2)
    assert analyze(evidence(hosts=(), stacks=both_looks(places))).verdict.guilty_ranks == (1,)


def test_a_native_wait_for_the_device_is_a_wait() -> None:
    native = (Frame("cuStreamSynchronize", "libcuda.so.1"), Frame("train", TRAIN, 2))
    verdict = analyze(demo(recordings=(), stacks=both_looks(dict.fromkeys(range(4), native)))).verdict
    assert (verdict.cause, verdict.guilty_ranks) == (Cause.INCONCLUSIVE, ())


def test_dumps_and_stacks_that_agree_on_who_is_missing_are_certain() -> None:
    loading = (Frame("_try_get_data", DATALOADER, 1200), Frame("train", TRAIN, 1))
    places = {2: loading, **{rank: in_collective("all_reduce", 2) for rank in (0, 1, 3)}}
    calls = {2: recording(STEP * 9, completed=9), **{rank: recording(STEP * 10) for rank in (0, 1, 3)}}
    verdict = analyze(demo(recordings=dumps(calls), stacks=both_looks(places))).verdict
    assert (verdict.cause, verdict.guilty_ranks, verdict.confidence) == (
        Cause.STUCK_IN_DATALOADER,
        (2,),
        Confidence.CERTAIN,
    )
    assert verdict.blocked_on is not None
    assert verdict.blocked_on.seq == 10


def test_a_rank_that_works_between_the_looks_is_at_most_possible() -> None:
    busy = processes([2], 4, cpu_s=0.9) + processes([0, 1, 3], 4)
    places = {2: (Frame("compute", TRAIN, 1),), **{rank: in_collective("all_reduce", 2) for rank in (0, 1, 3)}}
    verdict = analyze(demo(processes=busy, recordings=(), stacks=both_looks(places))).verdict
    assert verdict.confidence is Confidence.POSSIBLE
    assert verdict.against


def test_all_in_the_same_call_blames_nobody() -> None:
    calls = {rank: recording(STEP * 10) for rank in range(4)}
    places = {rank: in_collective("all_reduce", 2) for rank in range(4)}
    verdict = analyze(demo(recordings=dumps(calls), stacks=both_looks(places))).verdict
    assert (verdict.cause, verdict.guilty_ranks) == (Cause.COLLECTIVE_STALLED, ())


def test_a_job_that_moves_is_not_hung() -> None:
    first = stacks({rank: in_collective("all_reduce", 2) for rank in range(4)}, look=1)
    second = stacks({rank: in_backward(2) for rank in range(4)}, look=2)
    verdict = analyze(demo(recordings=(), stacks=first + second, processes=processes(range(4), 4, cpu_s=0.5))).verdict
    assert (verdict.cause, verdict.guilty_ranks) == (Cause.PROGRESSING, ())


def test_a_rank_that_spins_for_its_gpu_is_not_at_work() -> None:
    waiting = {rank: in_collective("all_reduce", 2) for rank in (0, 1, 2)}
    first = stacks({**waiting, 3: (Frame("parse", TRAIN, 1), Frame("train", TRAIN, 3))}, look=1)
    second = stacks({**waiting, 3: (Frame("read", TRAIN, 1), Frame("train", TRAIN, 4))}, look=2)
    report = analyze(demo(recordings=(), stacks=first + second, processes=processes(range(4), 4, cpu_s=1.0)))
    assert (report.verdict.cause, report.verdict.guilty_ranks) == (Cause.INCONCLUSIVE, ())
    assert report.findings[0].suspects == (3,)


def test_recorders_with_calls_newer_than_the_first_look_prove_progress() -> None:
    calls = {rank: recording(STEP * 10, completed=10 - rank % 2) for rank in range(4)}
    early = processes(range(4), 4, first_look_ns=NOW_NS + STEP_NS)
    verdict = analyze(demo(recordings=dumps(calls), processes=early)).verdict
    assert (verdict.cause, verdict.confidence) == (Cause.PROGRESSING, Confidence.CERTAIN)


def test_a_partial_collection_never_reads_as_healthy() -> None:
    first = stacks({rank: in_collective("all_reduce", 2) for rank in range(3)}, look=1)
    second = stacks({rank: in_backward(2) for rank in range(3)}, look=2)
    report = analyze(demo(recordings=(), stacks=first + second, processes=processes(range(3), 4, cpu_s=0.5)))
    assert report.verdict.cause is Cause.INCONCLUSIVE
    assert report.status is Status.PARTIAL
    assert "Rank 3" in report.verdict.summary


def test_the_kernels_own_kill_line_with_the_ranks_pid_is_proof() -> None:
    artifact = Artifact(path="hosts/node1/kernel_log/kernel.log", kind=Kind.KERNEL_LOG, host="node1", origin="dmesg")
    kill = OomKill(
        pid=1002, command="python", cgroup=None, anon_rss_kb=1, line=7, when="1.0", quote="Killed process 1002"
    )
    verdict = analyze(demo(oom_kills=(Sourced(artifact, kill),))).verdict
    assert (verdict.cause, verdict.guilty_ranks, verdict.confidence) == (
        Cause.RANK_OOM_KILLED,
        (2,),
        Confidence.CERTAIN,
    )


def killed(pid: int) -> tuple[Sourced[OomKill], ...]:
    artifact = Artifact(path="hosts/node1/kernel_log/kernel.log", kind=Kind.KERNEL_LOG, host="node1", origin="dmesg")
    return (
        Sourced(
            artifact,
            OomKill(
                pid=pid, command="python", cgroup=None, anon_rss_kb=1, line=7, when="1.0", quote=f"Killed process {pid}"
            ),
        ),
    )


def test_a_killed_pid_that_fits_the_one_missing_rank_is_probable() -> None:
    alive = processes([0, 1, 3], 4)
    waiting = both_looks({rank: in_collective("all_reduce", 2) for rank in (0, 1, 3)})
    verdict = analyze(demo(processes=alive, recordings=(), stacks=waiting, oom_kills=killed(1002))).verdict
    assert (verdict.cause, verdict.guilty_ranks) == (Cause.RANK_OOM_KILLED, (2,))
    assert verdict.confidence is Confidence.PROBABLE
    elsewhere = analyze(demo(processes=alive, recordings=(), stacks=waiting, oom_kills=killed(4711))).verdict
    assert (elsewhere.cause, elsewhere.guilty_ranks) == (Cause.INCONCLUSIVE, ())


def test_a_kill_of_a_stranger_blames_nobody() -> None:
    artifact = Artifact(path="hosts/node1/kernel_log/kernel.log", kind=Kind.KERNEL_LOG, host="node1", origin="dmesg")
    kill = OomKill(pid=4, command="python", cgroup=None, anon_rss_kb=1, line=7, when="1.0", quote="Killed process 4")
    assert analyze(demo(oom_kills=(Sourced(artifact, kill),))).verdict.cause is Cause.COLLECTIVE_EXTRA


def test_the_ranks_of_the_one_silent_host_are_named_as_possible() -> None:
    waiting = {rank: in_collective("all_reduce", 2) for rank in (0, 1)}
    report = analyze(
        demo(
            hosts=(host(), host("node2", Outcome.TIMED_OUT)),
            processes=processes([0, 1], 4),
            recordings=(),
            stacks=both_looks(waiting),
        )
    )
    assert (report.verdict.cause, report.verdict.guilty_ranks) == (Cause.HOST_UNREACHABLE, (2, 3))
    assert report.verdict.confidence is Confidence.POSSIBLE
    assert report.status is Status.PARTIAL


def test_a_host_that_refuses_the_login_is_alive_and_nobody_is_named() -> None:
    waiting = {rank: in_collective("all_reduce", 2) for rank in (0, 1)}
    hosts = (host(), host("node2", Outcome.FAILED))
    report = analyze(demo(hosts=hosts, processes=processes([0, 1], 4), recordings=(), stacks=both_looks(waiting)))
    assert (report.verdict.cause, report.verdict.guilty_ranks) == (Cause.INCONCLUSIVE, ())
    assert "2-3" in report.verdict.summary


def test_no_evidence_says_what_to_do() -> None:
    report = analyze(evidence(hosts=()))
    assert (report.status, report.verdict.cause) == (Status.NO_EVIDENCE, Cause.INCONCLUSIVE)
    assert report.verdict.next_steps
