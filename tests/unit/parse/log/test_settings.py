"""Settings, versions, the size of the job and the pids of ranks."""

from typing import Any

import pytest

from ncclprobe.model.log import LogEvent, Setting, WorldSize
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.settings import RECOGNIZER


def heard(*texts: str, **fields: Any) -> list[LogEvent]:
    recognizer = RECOGNIZER()
    lines = [LogLine(number=number, text=text, **fields) for number, text in enumerate(texts, 1)]
    return [*(event for line in lines for event in recognizer.feed(line)), *recognizer.end()]


def settings(*texts: str) -> dict[str, str]:
    return {event.what.name: event.what.value for event in heard(*texts) if isinstance(event.what, Setting)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+ export MASTER_ADDR=node01 WORLD_SIZE=2", {"MASTER_ADDR": "node01", "WORLD_SIZE": "2"}),
        ("export NCCL_SOCKET_IFNAME='eth0'", {"NCCL_SOCKET_IFNAME": "eth0"}),
        ('declare -x NCCL_IB_DISABLE="1"', {"NCCL_IB_DISABLE": "1"}),
        ("NCCL_P2P_DISABLE=1", {"NCCL_P2P_DISABLE": "1"}),
        ("node02 rank 4: RANK=4 WORLD_SIZE=8", {"RANK": "4", "WORLD_SIZE": "8"}),
        ("+ torchrun --nnodes 2 --nproc-per-node 4 --node-rank=1 --master-addr localhost --master_port 29500 train.py",
         {"NNODES": "2", "NPROC_PER_NODE": "4", "NODE_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}),
        ("[node01] pip: nvidia-nccl-cu12==2.20.5", {"nccl": "2.20.5"}),
        ("nvidia-nccl-cu13         2.28.9", {"nccl": "2.28.9"}),
        ("torch                    2.9.0+cu130", {"torch": "2.9.0+cu130"}),
        ("[pip3] torch==2.3.1", {"torch": "2.3.1"}),
        ("PyTorch version: 2.3.1+cu121", {"torch": "2.3.1+cu121"}),
        ("torch version .................... 2.3.0", {"torch": "2.3.0"}),
        ("[node01] driver 550.54.15", {"driver": "550.54.15"}),
        ("Nvidia driver version: 550.54.15", {"driver": "550.54.15"}),
        ("Linux node02 6.8.0-1031-nvidia-64k #34-Ubuntu SMP PREEMPT_DYNAMIC aarch64 aarch64 aarch64 GNU/Linux",
         {"machine": "aarch64", "kernel": "6.8.0-1031-nvidia-64k"}),
        ("AWS_SECRET_KEY=abc NCCL_DEBUG=INFO HF_TOKEN=x WORLD_SIZE=8", {"NCCL_DEBUG": "INFO", "WORLD_SIZE": "8"}),
        ("For debugging consider passing CUDA_LAUNCH_BLOCKING=1", {}),
        ("disable the monitor (set TORCH_NCCL_ENABLE_MONITORING=0).", {}),
        ("driver is fine, torch is 2 years old", {}),
    ],
)  # fmt: skip
def test_settings(text: str, expected: dict[str, str]) -> None:
    assert settings(text) == expected


@pytest.mark.parametrize(
    ("text", "size", "rank"),
    [
        ("using world size: 8, data-parallel size: 4, tensor-model-parallel size: 2", 8, None),
        ("All distributed processes registered. Starting with 4 processes", 4, None),
        ("INFO: distributed backend nccl, 4 processes", 4, None),
        ("INFO influence: world_size=4, dataset shard 0/4", 4, None),
        ("Epoch 0, Rank 0, world_size 8: 40batch", 8, 0),
        ("Initializing distributed: GLOBAL_RANK: 5, MEMBER: 6/8", 8, 5),
        ("world_size=2 rank=1 local_rank=1 distributed_init_method=tcp://10.0.0.1:1", 2, 1),
        ("node02 rank 4: RANK=4 WORLD_SIZE=8 MASTER_ADDR=localhost", 8, 4),
        ("torchrun --nnodes 2 --nproc-per-node 4 train.py", 8, None),
        ("torchrun --nnodes 1:4 --nproc-per-node gpu train.py", None, None),
        ("Waiting in store based barrier for rank: 0 (world_size=2, worker_count=4)", None, None),
        ("    dist.init_process_group(backend='nccl', world_size=2, rank=rank)", None, None),
    ],
)
def test_world_sizes(text: str, size: int | None, rank: int | None) -> None:
    sizes = [(event.what.size, event.rank) for event in heard(text) if isinstance(event.what, WorldSize)]
    assert sizes == ([] if size is None else [(size, rank)])


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("[rank13] pid 59246 local dataset shard", {"rank": 13}, (13, 59246)),
        ("pid 59246 local dataset shard", {"rank": 13}, (13, 59246)),
        ("[axo.load_dataset] [PID:6031] [RANK:0] Loading raw datasets...", {}, (0, 6031)),
        ("worker up: rank=3 pid=4021", {"rank": 3}, (3, 4021)),
        ("using GPU 2 to perform barrier", {"rank": 6, "pid": 40210}, (6, 40210)),
        ("pid 59246 is alone", {}, None),
        ("DataLoader worker (pid 2419) is killed", {"rank": 3}, None),
        ("W0330 59102 torch/distributed/run.py:766] x", {"rank": 1, "pid": 59102}, None),
    ],
)
def test_pids_of_ranks(text: str, fields: dict[str, int], expected: tuple[int, int] | None) -> None:
    pids = [(event.rank, event.pid) for event in heard(text, **fields)
            if isinstance(event.what, Setting) and event.what.name == "pid"]  # fmt: skip
    assert pids == ([] if expected is None else [expected])


def test_pids_of_local_ranks() -> None:
    (event,) = heard(
        "process 2201 spawned with command: ['/usr/bin/python', '-u', 'train.py', '--local_rank=1', '--x']"
    )
    assert (event.pid, event.local_rank, event.rank) == (2201, 1, None)


def test_each_is_told_once_for_a_rank_and_host() -> None:
    assert len(heard("NCCL_DEBUG=INFO", "NCCL_DEBUG=INFO", "NCCL_DEBUG=WARN")) == 2
    assert heard("[node01] pip: torch==2.3.1")[0].host == "node01"
    recognizer = RECOGNIZER()
    lines = [LogLine(number=1, text="NCCL_DEBUG=INFO", rank=rank) for rank in (0, 1, 1)]
    assert len([event for line in lines for event in recognizer.feed(line)]) == 2


def test_which_ranks_a_host_has() -> None:
    mapping = "global_rank_mapping=defaultdict(<class 'list'>, {'worker-0': [0, 1], 'worker-1': [2, 3]})"
    firsts = {event.host: event.what for event in heard(mapping)}
    assert {host: what.value for host, what in firsts.items() if isinstance(what, Setting)} == {
        "worker-0": "0",
        "worker-1": "2",
    }
    assert settings("  global_ranks=[4, 5, 6, 7]") == {"FIRST_RANK": "4"}


@pytest.mark.parametrize("text", ["mp.spawn(run, args=(3,), nprocs=3)", "nnodes=1, num_local_procs=3, node_rank=0"])
def test_how_many_processes_a_host_has(text: str) -> None:
    assert settings(text)["NPROC_PER_NODE"] == "3"


@pytest.mark.parametrize("text", ["dist_world_size=8", "Rank 3 of 8 initialised", "rank 3 of 8"])
def test_more_words_for_the_size_of_the_world(text: str) -> None:
    assert WorldSize(size=8) in [event.what for event in heard(text)]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("rank 8 on hawk7 (local 0)", "hawk7"),
        ("rank=8 host=n11.cluster local_rank=0", "n11.cluster"),
        ("rank 8 on cuda:1", None),
    ],
)
def test_where_a_rank_says_that_it_runs(text: str, host: str | None) -> None:
    found = [(e.rank, e.host) for e in heard(text) if isinstance(e.what, Setting) and e.what.name == "host"]
    assert found == ([] if host is None else [(8, host)])


def test_ray_train_lists_its_workers() -> None:
    (event,) = heard("- (node_id=4fa, ip=10.0.3.7, pid=3305) world_rank=5, local_rank=1, node_rank=1", pid=800)
    assert (event.rank, event.pid, event.host) == (5, 3305, "10.0.3.7")


def test_a_local_rank_of_a_logger_is_no_setting() -> None:
    assert not [event for event in heard("[PID:91] [RANK:2] x", pid=91, local_rank=2) if event.rank is not None]
