"""Rank 0 prepares the data while the others wait at a barrier, and never gets done.

    torchrun --standalone --nproc-per-node 4 rank0_preprocessing.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 rank0_preprocessing.py --fixed  # runs to its end

Rank 0 builds the index of the next part of the data, for all ranks. So that no two jobs do it at once, it waits for a
lock file to go away. The job that made this one was killed months ago:

    rank 0       waits in `build_index`, in no collective
    other ranks  wait in `dist.barrier()`

After 30 minutes the others report a timeout in a barrier, rank 0 reports nothing at all.
"""

import argparse
import fcntl
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def build_index(corpus: Path) -> None:
    """Write the index of `corpus`, the way it hangs: a file that is there means that somebody works on it."""
    lock = corpus / "index.lock"
    while lock.exists():
        time.sleep(0.1)  # planted: the lock file of a job that was killed
    lock.touch()
    (corpus / "index").write_text("0 1 2 3")
    lock.unlink()


def build_index_fixed(corpus: Path) -> None:
    """The same, the way it works: the kernel takes the lock back from a process that ends, however it ends."""
    with open(corpus / "index.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (corpus / "index").write_text("0 1 2 3")


def prepare(corpus: Path, is_fixed: bool) -> None:
    """Rank 0 works, the others wait until it is done."""
    if dist.get_rank() == 0:
        (build_index_fixed if is_fixed else build_index)(corpus)
    dist.barrier()


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; after step `args.at_step` the next part of the data is prepared."""
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as directory:
        corpus = Path(directory)
        (corpus / "index.lock").touch()  # the killed job
        for step in range(1, args.steps + 1):
            inputs = torch.randn(16, 32, device=device)
            loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}")
            if step == args.at_step:
                prepare(corpus, args.fixed)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="prepare the next part of the data after step N")
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
