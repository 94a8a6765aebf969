"""Who is missing in a communicator that the others began to make."""

from pathlib import Path

import pytest

from ncclprobe.analyze.verdict import analyze
from ncclprobe.inputs import open_inputs
from ncclprobe.loading import load_items
from ncclprobe.model.report import Cause, Verdict


def init(rank: int, size: int, *, started: bool = True, comm_id: str = "0xa", number: int | None = None) -> str:
    """The lines of global rank `rank`, which is `number` in a communicator."""
    line = f"h1:{100 + rank}:{200 + rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x55{comm_id[2:]}{rank:02x} rank "
    line += f"{rank if number is None else number} nranks {size} cudaDev {rank} nvmlDev {rank} busId {rank + 1}8000 "
    return f"{line}commId {comm_id} - Init START\n" + ("" if started else f"{line}commId {comm_id} - Init COMPLETE\n")


def job(directory: Path, *smaller: str) -> Verdict:
    world = "".join(init(rank, 4, started=False) for rank in range(4))
    (directory / "nccl.log").write_text(world + "".join(smaller))
    with open_inputs([directory]) as inputs:
        return analyze(load_items(inputs.items, inputs.hosts, inputs.gaps)).verdict


def test_the_only_rank_that_fits_is_named(tmp_path: Path) -> None:
    verdict = job(tmp_path, *(init(rank, 3, comm_id="0xb", number=n) for n, rank in ((0, 0), (2, 2))))
    assert (verdict.cause, verdict.guilty_ranks) == (Cause.RANK_NEVER_JOINED, (1,))


def test_where_two_fit_nobody_is_named(tmp_path: Path) -> None:
    verdict = job(tmp_path, init(0, 2, comm_id="0xb", number=0), init(1, 3, comm_id="0xc", number=0))
    assert verdict.guilty_ranks == ()


@pytest.mark.parametrize("has_two", [True, False])
def test_who_waits_in_another_one_is_not_missing_by_itself(tmp_path: Path, has_two: bool) -> None:
    """0 waits for 1, which waits for 2, which came to neither."""
    second = init(1, 2, comm_id="0xc", number=0)
    waits = (init(0, 2, comm_id="0xb", number=0), second, init(3, 2, comm_id="0xd", number=1))
    verdict = job(tmp_path, *(waits if has_two else waits[1:]))
    assert not {0, 1, 3} & set(verdict.guilty_ranks)


def test_a_communicator_that_was_made_is_well(tmp_path: Path) -> None:
    lines = [init(rank, 2, comm_id="0xb", number=n, started=False) for n, rank in ((0, 0), (1, 1))]
    assert job(tmp_path, *lines).cause is Cause.INCONCLUSIVE
