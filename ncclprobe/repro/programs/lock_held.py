"""A thread of rank 1 fails between taking a lock and giving it back; the next step waits for that lock for ever.

    torchrun --standalone --nproc-per-node 4 lock_held.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 lock_held.py --fixed  # runs to its end

A thread writes the losses to disk now and then. On rank 1 the disk is full:

    thread of rank 1  acquires the lock, OSError, ends: its traceback is all that is left of it
    rank 1            waits for the lock in `Losses.add`, in no collective
    other ranks       wait in the all-reduce of the next step, for the gradients of rank 1

The traceback looks like the end of the story. But it ended a thread only: the process lives, and with it the lock.
"""

import argparse
import errno
import os
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def write(losses: list[float]) -> None:
    """To disk. The one of rank 1 is full."""
    if dist.get_rank() == 1:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Losses:
    """The losses so far, for the training loop and for the thread that writes them; the way it hangs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.losses: list[float] = []

    def add(self, loss: float) -> None:
        """For the training loop."""
        self.lock.acquire()  # planted: nobody gives this lock back any more
        self.losses.append(loss)
        self.lock.release()

    def flush(self) -> None:
        """For the thread."""
        self.lock.acquire()
        write(self.losses)  # an exception here skips the next line
        self.lock.release()


class LossesFixed(Losses):
    """The same, the way it works: `with` gives the lock back, whatever happens inside."""

    def add(self, loss: float) -> None:
        """For the training loop."""
        with self.lock:
            self.losses.append(loss)

    def flush(self) -> None:
        """For the thread."""
        with self.lock:
            write(self.losses)


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; after step `args.at_step` a thread writes the losses to disk."""
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = LossesFixed() if args.fixed else Losses()
    for step in range(1, args.steps + 1):
        inputs = torch.randn(16, 32, device=device)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.add(loss.item())
        print(f"step {step} loss {loss.item():.4f}")
        if step == args.at_step:
            writer = threading.Thread(target=losses.flush)
            writer.start()
            writer.join()


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="a thread fails with the lock in hand after step N")
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
