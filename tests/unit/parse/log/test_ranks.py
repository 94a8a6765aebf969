"""When a launcher's number is a rank."""

import pytest

from ncclprobe.parse.log.layout import Layout
from ncclprobe.parse.log.prefix import Prefixes
from ncclprobe.parse.log.ranks import Claims


def ranks(*texts: str) -> list["int | None"]:
    """The rank of each line, once all are seen."""
    prefixes, claims = Prefixes(lambda: Layout(has_tasks=True)), Claims()
    said = [one for number, text in enumerate(texts, 1) for one in prefixes.read(number, text)]
    for one in said:
        claims.see(one)
    return [one.line.rank if one.line.rank is not None else claims.rank(one.claim) for one in said]


def test_a_task_of_srun_is_a_rank() -> None:
    assert ranks("0: a", "3: b", "[rank9]: c") == [0, 3, 9]
    assert ranks("0: [rank0]: a", "3: [rank3]: b", "3: c") == [0, 3, 3]


@pytest.mark.parametrize(
    "line",
    [
        "1: [rank5]: x",
        "1: main.py: spawning 2 processes (torch.cuda.device_count()=2)",
        "1: [default0]:x",
    ],
)
def test_a_task_of_several_processes_is_no_rank(line: str) -> None:
    assert ranks("0: a", "1: b", line, "1: [default1]:y")[:2] == [None, None]


def test_two_processes_of_one_task() -> None:
    assert ranks("0: n1:71:71 [0] NCCL INFO x", "0: n1:72:72 [1] NCCL INFO x", "0: a")[2] is None
    assert ranks("0: n1:71:71 [0] NCCL INFO x", "1: n1:72:72 [1] NCCL INFO x", "0: a")[2] == 0


def test_mpirun_and_srun_are_told_apart() -> None:
    assert ranks("[1,3]<stderr>:x", "0: [rank7]: y", "0: z") == [3, 7, None]


def server(*axes: str) -> list["int | None"]:
    return ranks(*(f"[2026-05-02 09:13:00 {one}] Load weight end." for one in axes))


def test_tensor_parallel_alone() -> None:
    assert server("TP0", "TP3") == [0, 3]
    assert ranks("(Worker_TP1 pid=3) x", "(Worker_TP0 pid=4) x") == [1, 0]


def test_attention_with_data_parallel_replicas_counts_tp_over_all() -> None:
    assert server("DP0 TP0", "DP0 TP3", "DP1 TP4", "DP1 TP7") == [0, 3, 4, 7]
    assert server("DP2 TP8", "DP2 TP11", "DP3 TP12") == [8, 11, 12]


def test_replicas_that_each_count_from_zero_are_ambiguous() -> None:
    assert server("DP0 TP0", "DP0 TP1", "DP1 TP0", "DP1 TP1") == [None] * 4
    assert server("DP1 TP0", "DP1 TP1") == [None, None]


def test_pipeline_stages() -> None:
    assert server("PP0 TP0", "PP1 TP0", "PP2 TP0") == [0, 1, 2]
    assert server("PP0 TP0", "PP0 TP1", "PP1 TP0", "PP1 TP1") == [0, 1, 2, 3]
    assert server("PP0 TP0", "PP0 TP1", "PP1 TP0") == [None] * 3
    assert ranks("(Worker_PP0 pid=3) x", "(Worker_PP1 pid=4) x") == [0, 1]


def test_other_axes_are_not_understood() -> None:
    assert ranks("(EngineCore_DP0 pid=3) x") == [None]
    assert server("CP0 TP0", "CP1 TP0") == [None, None]


def test_a_process_is_known_by_torchs_lines() -> None:
    prefixes, claims = Prefixes(Layout), Claims()
    texts = [
        "(W pid=4, ip=n1) [rank6]:[E901 05:20:03.01 a.cpp:1] x",
        "(W pid=5, ip=n1) [rank7] x",
        "(W pid=5, ip=n1) [rank8] x",
    ]
    for text in texts:
        for said in prefixes.read(1, text):
            claims.see(said)
    assert claims.process_rank("n1", 4) == 6
    assert claims.process_rank("n1", 5) is None
    assert claims.process_rank("n2", 4) is None
    assert claims.process_rank("n1", None) is None
