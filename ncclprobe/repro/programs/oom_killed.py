"""A rank that needs more memory than its cgroup allows, so that the kernel kills it, while the others wait for it.

    for RANK in 0 1 2 3; do ... python oom_killed.py & done          # with rank 1 in a cgroup of 1 GiB: it is killed
    for RANK in 0 1 2 3; do ... python oom_killed.py --fixed & done  # runs to its end in the same memory

Before the second epoch every rank builds an index of its samples, and says in the key-value store that it is ready.
Rank 1 has the large shard, and its memory is limited, as Slurm and Kubernetes limit it:

    rank 1       SIGKILL from the kernel, in the middle of a line: no exception, no last word, no core dump
    other ranks  wait in the key-value store until rank 1 is ready, for up to 30 minutes

Only the kernel's log tells (`dmesg | grep -i "killed process"`), and it names a pid, not a rank.
"""

import argparse
import os
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def samples(count: int) -> Iterator[bytes]:
    """The samples of a shard: 1 MiB each."""
    for number in range(count):
        yield number.to_bytes(4, "big") * (1 << 18)


def build_index(count: int) -> list[bytes]:
    """All samples at once, the way it is killed."""
    return sorted(samples(count))  # planted: holds the whole shard in memory


def build_index_fixed(count: int) -> list[bytes]:
    """The same, the way it works: the key of each sample is all that is kept of it."""
    return sorted(sample[:4] for sample in samples(count))


def prepare_epoch(args: argparse.Namespace) -> None:
    """Build the index, and wait until all ranks have."""
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    index = (build_index_fixed if args.fixed else build_index)(4096 if rank == 1 else 16)
    store.set(f"index/{rank}", str(len(index)))
    store.wait([f"index/{other}" for other in range(dist.get_world_size())], timedelta(minutes=30))


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; after `args.at_step` of them a new epoch begins."""
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, args.steps + 1):
        inputs = torch.randn(16, 32, device=device)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")
        if step == args.at_step:
            prepare_epoch(args)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the step after which the second epoch begins")
    parser.add_argument("--steps", type=int, help="how long to train; default: 100 steps past that")
    parser.add_argument("--backend", choices=["auto", "gloo", "nccl"], default="auto")
    parser.add_argument("--fixed", action="store_true", help="run the repaired program")
    args = parser.parse_args()
    args.steps = args.at_step + 100 if args.steps is None else args.steps
    return args


def main() -> None:
    args = parse_args()
    # NCCL wants a GPU of its own for every rank on this machine; otherwise train on the CPU with gloo.
    has_gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    backend = args.backend if args.backend != "auto" else "nccl" if has_gpus else "gloo"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timedelta(minutes=30))
    train(args, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
