"""GPUs, links, the kernel and RAS: when they name somebody and when not; whole jobs are in `tests/cases`."""

from pathlib import Path

import pytest

from ncclprobe.model.report import Cause, Report
from tests import ras_reports
from tests.log_text import init, report_on, timeouts, warn


def answer(report: Report) -> tuple[Cause, tuple[int, ...]]:
    return report.verdict.cause, report.verdict.guilty_ranks


def started(size: int = 4, *, hosts: int = 1) -> str:
    return "".join(init(rank, size, host=f"node{rank * hosts // size + 1}") for rank in range(size))


def retries(rank: int, peer: str, host: str) -> str:
    text = f"NET/IB : Got completion from peer {peer}<4000> with status=12 opcode=0 len=0 vendor err 129 (Send)"
    return warn(rank, text, host=host)


def bootstrap(rank: int, address: str, host: str) -> str:
    pid = 1000 + rank
    return f"{host}:{pid}:{pid} [0] NCCL INFO Bootstrap: Using eth0:{address}<0>\n"


def test_a_host_that_all_transfers_end_at_is_named(tmp_path: Path) -> None:
    log = started(6, hosts=3) + "".join(
        bootstrap(rank, f"10.0.0.{rank // 2 + 1}", f"node{rank // 2 + 1}") for rank in range(6)
    )
    log += "".join(retries(rank, "10.0.0.3", f"node{rank // 2 + 1}") for rank in range(4))
    assert answer(report_on(tmp_path, nccl_log=log)) == (Cause.NETWORK_FAULT, (4, 5))


def test_between_two_hosts_both_ends_of_the_rail_are(tmp_path: Path) -> None:
    log = started(4, hosts=2) + retries(1, "10.0.0.2", "node1")
    assert answer(report_on(tmp_path, nccl_log=log)) == (Cause.NETWORK_FAULT, (1, 3))


def test_a_host_without_a_log_may_be_the_other_end(tmp_path: Path) -> None:
    log = started(6, hosts=3).replace("node3:1004", "node9:x").replace("node3:1005", "node9:x")
    report = report_on(tmp_path, nccl_log=log + retries(1, "10.0.0.9", "node1"))
    assert report.verdict.guilty_ranks == ()


@pytest.mark.parametrize(("clock", "named"), [("10:00", True), ("05:27", False)])
def test_a_link_is_named_only_if_it_went_down_as_the_hang_began(tmp_path: Path, clock: str, named: bool) -> None:
    line = f"2026-09-01T{clock}:00,000000+00:00 mlx5_core 0000:5e:00.0 eth2: Link down\n"
    (tmp_path / "dmesg-node2.txt").write_text(line)
    report = report_on(tmp_path, nccl_log=started(4, hosts=2), train_log=timeouts(range(4), 9))
    assert answer(report) == ((Cause.NETWORK_FAULT, (2, 3)) if named else (Cause.COLLECTIVE_STALLED, ()))


XID = "2026-{day}T10:00:01,000000+00:00 NVRM: Xid (PCI:0000:30:00): 31, pid={pid}, name=python, MMU Fault\n"


@pytest.mark.parametrize(
    ("day", "pid", "expected"),
    [
        ("09-01", 1002, (Cause.GPU_FAULT, (2,))),
        ("08-20", 1002, (Cause.COLLECTIVE_STALLED, ())),
        ("08-20", 77, (Cause.COLLECTIVE_STALLED, ())),
    ],
)
def test_an_xid_that_the_job_outlived_explains_nothing(
    tmp_path: Path, day: str, pid: int, expected: tuple[Cause, tuple[int, ...]]
) -> None:
    (tmp_path / "dmesg-node1.txt").write_text(XID.format(day=day, pid=pid))
    assert answer(report_on(tmp_path, nccl_log=started(), train_log=timeouts(range(4), 9))) == expected


def test_a_blocked_process_of_another_program_is_nobody(tmp_path: Path) -> None:
    line = "[ 900.000001] INFO: task {}:{} blocked for more than 122 seconds.\n"
    (tmp_path / "dmesg-node1.txt").write_text(line.format("updatedb", 77))
    report = report_on(tmp_path, nccl_log=started(), train_log=timeouts((0, 1, 2), 9))
    assert report.verdict.guilty_ranks == ()
    (tmp_path / "dmesg-node1.txt").write_text(line.format("python", 1003))
    assert answer(report_on(tmp_path)) == (Cause.STUCK_IN_PYTHON, (3,))


def test_a_rank_that_timed_out_itself_was_blocked_before(tmp_path: Path) -> None:
    (tmp_path / "dmesg-node1.txt").write_text(
        "[ 900.000001] INFO: task python:1003 blocked for more than 122 seconds.\n"
    )
    assert answer(report_on(tmp_path, nccl_log=started(), train_log=timeouts(range(4), 9)))[1] == ()


CSV = "index, pci.bus_id, utilization.gpu [%], power.draw [W], enforced.power.limit [W]\n"


def look(*of_gpu: tuple[int, float]) -> str:
    rows = (f"{n}, 00000000:{n + 1}0:00.0, {use} %, {watts} W, 700.00 W\n" for n, (use, watts) in enumerate(of_gpu))
    return CSV + "".join(rows)


def test_one_look_at_an_idle_gpu_names_nobody_unless_the_job_is_known_to_hang(tmp_path: Path) -> None:
    (tmp_path / "gpus.csv").write_text(look((100, 140), (100, 141), (0, 118), (100, 139)))
    assert report_on(tmp_path, nccl_log=started()).verdict.guilty_ranks == ()
    assert answer(report_on(tmp_path, train_log=timeouts((0, 1, 3), 9))) == (Cause.STUCK_IN_PYTHON, (2,))


def test_a_process_that_ras_gave_up_is_named_if_it_was_first(tmp_path: Path) -> None:
    report = ras_reports.as_json(
        [ras_reports.rank(r, {"AllReduce": 5}) for r in range(3)], [ras_reports.missing(3, dead=True)]
    )
    (tmp_path / "ras.json").write_text(report)
    assert answer(report_on(tmp_path, train_log=timeouts((0, 1, 2), 9))) == (Cause.RANK_CRASHED, (3,))
    assert report_on(tmp_path, train_log=timeouts(range(4), 9)).verdict.guilty_ranks == ()


def test_most_processes_dead_is_no_answer(tmp_path: Path) -> None:
    ranks, dead = [ras_reports.rank(0, {"AllReduce": 5})], [ras_reports.missing(r, dead=True) for r in (1, 2, 3)]
    (tmp_path / "ras.json").write_text(ras_reports.as_json(ranks, dead))
    assert report_on(tmp_path).verdict.guilty_ranks == ()


def test_the_full_name_of_a_host_is_the_same_host(tmp_path: Path) -> None:
    line = "Sep  1 10:00:01 node1.example.org kernel: python[1003]: segfault at 0 ip 00007f ssp 0 error 4\n"
    (tmp_path / "messages").write_text(line.replace("ssp", "sp"))
    assert answer(report_on(tmp_path, nccl_log=started(), train_log=timeouts((0, 1, 2), 9))) == (
        Cause.RANK_CRASHED,
        (3,),
    )


def test_a_pid_of_a_host_that_nobody_knows_is_nobody(tmp_path: Path) -> None:
    """Half of the ranks gave no log: the pid may be one of theirs."""
    (tmp_path / "dmesg.txt").write_text("[ 900.000001] Out of memory: Killed process 1001 (python) total-vm:1kB\n")
    assert report_on(tmp_path, nccl_log=init(0, 4) + init(1, 4)).verdict.guilty_ranks == ()
    assert answer(report_on(tmp_path, nccl_log=started())) == (Cause.RANK_OOM_KILLED, (1,))
