"""A model trained from shards on shared storage, that hangs when the worker of one data loader reads a shard.

    torchrun --standalone --nproc-per-node 4 slow_dataloader.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 slow_dataloader.py --fixed  # runs to its end

The storage of rank 1's second shard has stopped answering, and a plain read waits for it for ever:

    rank 1       waits in `for batch in loader`, in no collective
    its worker   waits in `open`, in `read_shard`: the cause is in a process that has no rank
    other ranks  wait in the all-reduce of their gradients, for those of rank 1

The stack of rank 1 only says "data loader". Which file it is about, only the stack of its worker can say.
"""

import argparse
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


def read_shard(path: Path) -> bytes:
    """A whole shard, the way it hangs: nothing bounds how long the storage may take."""
    with open(path, "rb") as file:  # planted: the storage behind one shard does not answer
        return file.read()


def read_shard_fixed(path: Path) -> bytes:
    """The way it works: a read that takes too long is given up, and the shard's other copy is read."""
    try:
        # In a process of its own: a read that is stuck in the kernel cannot be interrupted, only left alone.
        return subprocess.run(["cat", str(path)], capture_output=True, check=True, timeout=2).stdout
    except subprocess.TimeoutExpired:
        return path.with_suffix(".copy").read_bytes()


class Batches(IterableDataset[torch.Tensor]):
    """The batches of this rank, 16 samples of 32 numbers each, shard by shard."""

    def __init__(self, shards: list[Path], read: Callable[[Path], bytes]) -> None:
        self.shards, self.read = shards, read

    def __iter__(self) -> Iterator[torch.Tensor]:
        for shard in self.shards:
            yield from torch.frombuffer(bytearray(self.read(shard)), dtype=torch.float32).reshape(-1, 16, 32)


def make_shards(directory: Path, sizes: tuple[int, int], is_stuck: bool) -> list[Path]:
    """Two shards of so many batches. A FIFO that nobody writes to stands for storage that does not answer."""
    shards = [directory / "0.shard", directory / "1.shard"]
    for path, size in zip(shards, sizes, strict=True):
        path.write_bytes(torch.randn(size, 16, 32).numpy().tobytes())
    if is_stuck:
        shards[1].rename(shards[1].with_suffix(".copy"))
        os.mkfifo(shards[1])
    return shards


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; from step `args.at_step` on the batches come from the second shard."""
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as directory:
        first = max(1, args.at_step - 1)
        shards = make_shards(Path(directory), (first, args.steps - first), is_stuck=dist.get_rank() == 1)
        batches = Batches(shards, read_shard_fixed if args.fixed else read_shard)
        for step, batch in enumerate(DataLoader(batches, batch_size=None, num_workers=1), start=1):
            inputs = batch.to(device)
            loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="read the bad shard in step N")
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
