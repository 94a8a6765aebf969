"""What follows from the operations that NCCL's logs list; whole jobs are in `tests/cases/trace-*`."""

from pathlib import Path

import pytest

from ncclprobe.model.report import Cause, Report
from tests.log_text import init, report_on, timeouts


def op(rank: int, name: str, count: int = 1024, *, op_count: int = 0, root: int = 0, comm: str = "") -> str:
    """One line, on the communicator that `init` makes."""
    return (
        f"node1:{1000 + rank}:{1000 + rank} [{rank}] NCCL INFO {name}: opCount {op_count:x} sendbuff 0x7f00 recvbuff "
        f"0x7f01 count {count} datatype 7 op 0 root {root} comm {comm or f'0x55{rank:06x}'} [nranks=4] stream 0x55aa\n"
    )


def job(*of_rank: str) -> str:
    return "".join(init(rank, len(of_rank)) + text for rank, text in enumerate(of_rank))


def answer(report: Report) -> tuple[Cause, tuple[int, ...]]:
    return report.verdict.cause, report.verdict.guilty_ranks


STEP = ("AllGather", "AllReduce")


def steps(rank: int, count: int, *more: str) -> str:
    return "".join(op(rank, name) for _ in range(count) for name in STEP) + "".join(more)


def test_a_rank_that_issued_fewer_is_a_suspect_only(tmp_path: Path) -> None:
    """A log is a snapshot, too."""
    log = job(*(steps(rank, 5 if rank != 2 else 4) for rank in range(4)))
    report = report_on(tmp_path, nccl_log=log)
    assert answer(report) == (Cause.INCONCLUSIVE, ())
    assert "Rank 2" in report.verdict.summary


def test_it_is_named_where_all_others_gave_up(tmp_path: Path) -> None:
    log = job(*(steps(rank, 5 if rank != 2 else 4) for rank in range(4)))
    report = report_on(tmp_path, nccl_log=log, train_log=timeouts((0, 1, 3), 10))
    assert report.verdict.guilty_ranks == (2,)


def test_most_are_not_late_for_the_few(tmp_path: Path) -> None:
    log = job(*(steps(rank, 5 if rank == 2 else 4) for rank in range(4)))
    report = report_on(tmp_path, nccl_log=log, train_log=timeouts((2,), 10))
    assert report.verdict.guilty_ranks == ()


def test_debts_lead_to_who_waits_for_nobody(tmp_path: Path) -> None:
    """0 sends to 1, 1 to 2, 2 to 3; 2 stopped, so 1 could not take the next one of 0."""
    sent, taken = (4, 3, 1, 0), (0, 3, 2, 2)
    texts = []
    for rank in range(4):
        recvs = "".join(op(rank, "Recv", root=rank - 1) for _ in range(taken[rank]))
        texts.append(recvs + "".join(op(rank, "Send", root=rank + 1) for _ in range(sent[rank])))
    assert answer(report_on(tmp_path, nccl_log=job(*texts))) == (Cause.P2P_MISMATCH, (2,))


def test_several_that_owe_are_suspects(tmp_path: Path) -> None:
    texts = [op(0, "Send", root=1), "", op(2, "Send", root=3), ""]
    texts[1], texts[3] = op(1, "Send", root=0) * 2, op(3, "Send", root=2) * 2
    texts[0] += op(0, "Recv", root=1) * 2
    texts[2] += op(2, "Recv", root=3) * 2
    report = report_on(tmp_path, nccl_log=job(*texts))
    assert report.verdict.guilty_ranks == ()


@pytest.mark.parametrize(("odd", "cause"), [("Broadcast", Cause.COLLECTIVE_SHAPE_MISMATCH), ("Reduce", None)])
def test_the_root_must_agree(tmp_path: Path, odd: str, cause: Cause | None) -> None:
    texts = [steps(rank, 2, op(rank, "Broadcast" if rank != 3 else odd, root=int(rank == 3))) for rank in range(4)]
    found = answer(report_on(tmp_path, nccl_log=job(*texts)))
    assert found[1] == (3,)
    assert cause in (None, found[0])


def test_a_size_that_was_never_used_is_other_data(tmp_path: Path) -> None:
    texts = [steps(rank, 3, op(rank, "AllGather", 1000 if rank == 1 else 1024)) for rank in range(4)]
    assert answer(report_on(tmp_path, nccl_log=job(*texts))) == (Cause.COLLECTIVE_SHAPE_MISMATCH, (1,))


def test_logs_that_begin_anywhere_are_compared_by_opcount_only(tmp_path: Path) -> None:
    names = ("AllGather", "AllReduce", "ReduceScatter")
    for moves in (0, 1):
        folder = tmp_path / str(moves)
        folder.mkdir()
        for rank in range(4):
            lines = (
                op(rank, names[n % 3], 512 if moves and n == 29 and rank == 1 else 1024, op_count=n * moves)
                for n in range(rank, 30)
            )
            (folder / f"nccl_rank{rank}.log").write_text("".join(lines))
        expected = (Cause.COLLECTIVE_SHAPE_MISMATCH, (1,)) if moves else (Cause.INCONCLUSIVE, ())
        assert answer(report_on(folder)) == expected


def test_half_of_a_communicator_does_not_outvote_the_half_that_nobody_heard(tmp_path: Path) -> None:
    texts = [steps(rank, 2, op(rank, "AllGather", 512 if rank == 1 else 1024)) for rank in range(2)]
    log = "".join(init(rank, 4) + text for rank, text in enumerate(texts))
    assert report_on(tmp_path, nccl_log=log).verdict.guilty_ranks == ()


def test_a_group_numbered_otherwise_than_the_lines_is_not_that_of_all_ranks(tmp_path: Path) -> None:
    """The two members of a communicator are global ranks 5 and 7, as their launcher says."""
    lines = [(5, init(0, 2) + op(0, "AllReduce")), (7, init(1, 2) + op(1, "AllGather"))]
    log = "".join(f"[rank{rank}]:{line}\n" for rank, text in lines for line in text.splitlines())
    assert report_on(tmp_path, nccl_log=log).verdict.guilty_ranks == (5, 7)
