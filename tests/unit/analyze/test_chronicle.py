"""What happened when: one line for each thing, by one clock; settings in which ranks differ."""

from pathlib import Path

from ncclprobe.analyze.case import build_case
from ncclprobe.analyze.chronicle import chronicle
from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.job import JobKey, JobProcess, Role
from ncclprobe.model.log import LogEvent, WorkTimeout
from ncclprobe.model.manifest import HostOutcome, Outcome
from ncclprobe.model.records import Evidence, Sourced
from tests.log_text import answer, report_on, says, timeouts, traceback

SECOND = 1_000_000_000


def gave_up(rank: int, host: str, when_s: int) -> Sourced[LogEvent]:
    work = WorkTimeout(seq=5, op="all_reduce", numel_in=1, numel_out=1, timeout_ms=60_000, ran_ms=60_000)
    event = LogEvent(line=1, quote="x", what=work, rank=rank, when_ns=when_s * SECOND)
    return Sourced(Artifact(path=f"{host}.log", kind=Kind.RANK_LOG, host=host, origin="x"), event)


def test_waiting_giving_up_and_the_last_word_in_order(tmp_path: Path) -> None:
    log = says(0, "saving checkpoint to /ckpt/1", at=30) + timeouts((1, 2, 3), 5, at=600) + answer(0, 4, asked_by=1)
    moments = report_on(tmp_path, train_log=log).timeline
    assert [(moment.when[11:], moment.ranks, moment.says) for moment in moments] == [
        ("09:59:59", "1-3", "waiting for all_reduce, call 5"),
        ("10:00:30", "0", "last word of its program: saving or loading a checkpoint"),
        ("10:10:00", "1-3", "watchdog gave up all_reduce, call 5, after its timeout of 10 min"),
    ]


def test_a_failure_is_told_and_a_time_without_a_year_has_none(tmp_path: Path) -> None:
    log = "world_size=3\n" + traceback(2, "ValueError: bad row") + timeouts((0, 1), 5, at=600)
    moments = report_on(tmp_path, train_log=log).timeline
    assert moments[-1].when == "09-01 10:10:00"


def test_clocks_of_hosts_are_brought_to_one() -> None:
    hosts = tuple(
        HostOutcome(name=name, address=name, outcome=Outcome.COMPLETE, clock_offset_ns=offset_s * SECOND)
        for name, offset_s in (("a", 0), ("b", 30))
    )
    events = (gave_up(0, "a", 1_000_000_000), gave_up(1, "b", 1_000_000_030))
    moments = chronicle(build_case(Evidence(hosts=hosts, log_events=events)))
    assert [moment.when for moment in moments] == ["2001-09-09 01:45:40", "2001-09-09 01:46:40"]
    assert {moment.ranks for moment in moments} == {"0-1"}


def process(rank: int, **settings: str) -> Sourced[JobProcess]:
    record = JobProcess(
        pid=100 + rank,
        role=Role.RANK,
        rank=rank,
        local_rank=rank,
        world_size=4,
        job=JobKey(run_id="x"),
        command="python train.py",
        user="train",
        settings=tuple(settings.items()),
    )
    return Sourced(Artifact(path="processes.json", kind=Kind.PROCESSES, host="a", origin="x"), record)


def test_a_setting_in_which_a_few_differ_is_a_lead_and_no_answer() -> None:
    ranks = [process(rank, NCCL_IB_HCA="mlx5" if rank else "mlx5_2", LOCAL_RANK=str(rank)) for rank in range(4)]
    report = analyze(Evidence(processes=tuple(ranks)))
    assert report.verdict.guilty_ranks == ()
    assert [finding.summary for finding in report.findings] == [
        "Rank 0 has NCCL_IB_HCA=mlx5_2, ranks 1-3 NCCL_IB_HCA=mlx5."
    ]
