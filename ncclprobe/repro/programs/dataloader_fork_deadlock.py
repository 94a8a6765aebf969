"""A data loader whose worker is forked while a thread holds a lock; the lock stays locked in the worker for ever.

    torchrun --standalone --nproc-per-node 4 dataloader_fork_deadlock.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 dataloader_fork_deadlock.py --fixed  # runs to its end

`fork` copies the memory of a process, locks included, but only the thread that calls it. Between two epochs a thread of
rank 1 reloads the index of its samples, under a lock. At that moment the loader forks the worker of the next epoch:

    thread of rank 1   takes the lock ......... reloads ......... gives it back, in rank 1
    worker, forked                  ^ a copy of the lock, locked, and nobody in this process who could give it back
    rank 1             waits for its worker, in no collective
    other ranks        wait in the all-reduce of their gradients, for those of rank 1

The thread is long done when somebody looks. What is left to see is a worker that waits for a lock that nobody holds.
"""

import argparse
import os
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[torch.Tensor]):
    """`size` batches, found by an index that a thread reloads now and then."""

    def __init__(self, size: int) -> None:
        self.lock = threading.Lock()
        self.index = list(range(size))

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, number: int) -> torch.Tensor:
        with self.lock:  # planted: locked by a thread that exists in the parent only
            place = self.index[number]
        return torch.randn(16, 32, generator=torch.Generator().manual_seed(place))

    def reload(self) -> None:
        """Fetch the index anew: half a second, with the lock in hand."""
        with self.lock:
            time.sleep(0.5)
            self.index = list(self.index)

    def reload_in_background(self) -> threading.Thread:
        """Come back as soon as the thread has the lock."""
        thread = threading.Thread(target=self.reload)
        thread.start()
        while not self.lock.locked():
            time.sleep(0.001)
        return thread


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, samples: Samples, first_step: int) -> None:
    """One step for each of the samples. A new epoch is a new worker, forked here."""
    loader = DataLoader(samples, batch_size=None, num_workers=1, multiprocessing_context="fork")
    for step, batch in enumerate(loader, start=first_step):
        inputs = batch.to(next(model.parameters()).device)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Two epochs: `args.at_step` steps, and what is left of `args.steps`."""
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train_epoch(model, optimizer, Samples(args.at_step), first_step=1)
    samples = Samples(args.steps - args.at_step)
    if dist.get_rank() == 1:  # the only one whose index is out of date
        reloading = samples.reload_in_background()
        if args.fixed:
            reloading.join()  # no thread holds a lock while a process is forked
    train_epoch(model, optimizer, samples, first_step=args.at_step + 1)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="start the second epoch after step N")
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
