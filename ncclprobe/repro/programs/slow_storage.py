"""A model trained from shards that the training process reads itself, that hangs when the storage of one hangs.

    torchrun --standalone --nproc-per-node 4 slow_storage.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 slow_storage.py --fixed  # runs to its end

No worker processes here (`num_workers=0`): the main thread of rank 1 is itself in `torch.load`, inside the data loader.
A dead file server looks like this, and like a job that "hangs in NCCL" to everyone else: ranks 0, 2 and 3 wait in an
all-reduce. Their stacks and their error messages say nothing of a file.
"""

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Batches(IterableDataset[torch.Tensor]):
    """The batches of this rank, 16 samples of 32 numbers each, shard by shard."""

    def __init__(self, shards: list[Path]) -> None:
        self.shards = shards

    def __iter__(self) -> Iterator[torch.Tensor]:
        for shard in self.shards:
            yield from torch.load(shard)  # planted: the storage behind one shard does not answer


def make_shards(storage: Path, sizes: tuple[int, int], is_stuck: bool) -> list[Path]:
    """Two shards of so many batches. A FIFO that nobody writes to stands for storage that does not answer."""
    shards = [storage / "0.pt", storage / "1.pt"]
    for path, size in zip(shards, sizes, strict=True):
        torch.save(torch.randn(size, 16, 32), path)
    if is_stuck:
        shards[1].rename(storage / "1.pt.copy")
        os.mkfifo(shards[1])
    return shards


def stage(shards: list[Path], disk: Path) -> list[Path]:
    """The repair: before training starts, copy all shards to the local disk, from the copy where the first one hangs.

    What hangs now hangs before the first step, in one place that says which file it is about, and can be retried.
    """
    sources = [path if path.is_file() else path.with_suffix(".pt.copy") for path in shards]
    return [Path(shutil.copyfile(source, disk / path.name)) for source, path in zip(sources, shards, strict=True)]


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; from step `args.at_step` on the batches come from the second shard."""
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as storage, tempfile.TemporaryDirectory() as disk:
        first = max(1, args.at_step - 1)
        shards = make_shards(Path(storage), (first, args.steps - first), is_stuck=dist.get_rank() == 1)
        batches = Batches(stage(shards, Path(disk)) if args.fixed else shards)
        for step, batch in enumerate(DataLoader(batches, batch_size=None), start=1):
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
