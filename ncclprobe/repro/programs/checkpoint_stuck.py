"""Rank 0 saves a checkpoint to storage that takes the first bytes and no more.

    torchrun --standalone --nproc-per-node 4 checkpoint_stuck.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 checkpoint_stuck.py --fixed  # runs to its end

    rank 0       is in `torch.save`, in a `write` that does not return, in no collective
    other ranks  wait in the all-reduce of the next step, for the gradients of rank 0

A full queue on a file server, a mount that lost its server: `write` has no timeout. Opening the file went well, so the
checkpoint is even there, and torn.
"""

import argparse
import os
import tempfile
import threading
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def save(model: nn.Module, path: Path) -> None:
    """Save a checkpoint, the way it hangs: the training loop waits for the storage."""
    with open(path, "wb") as file:
        torch.save(model.state_dict(), file)  # planted: the storage takes no more bytes


def save_fixed(model: nn.Module, path: Path, disk: Path) -> None:
    """The same, the way it works: save to the local disk, and let a thread bring the file to the storage."""
    torch.save(model.state_dict(), disk / path.name)
    threading.Thread(target=lambda: path.write_bytes((disk / path.name).read_bytes()), daemon=True).start()


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; every `args.at_step` of them rank 0 saves the model."""
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(32, 1024), nn.ReLU(), nn.Linear(1024, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as storage, tempfile.TemporaryDirectory() as disk:
        checkpoint = Path(storage) / "checkpoint.pt"
        # A FIFO that somebody has open and nobody reads stands for the storage: 64 KiB fit into it.
        os.mkfifo(checkpoint)
        os.open(checkpoint, os.O_RDWR)
        for step in range(1, args.steps + 1):
            inputs = torch.randn(16, 32, device=device)
            loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}")
            if step % args.at_step == 0 and dist.get_rank() == 0:
                if args.fixed:
                    save_fixed(network, checkpoint, Path(disk))
                else:
                    save(network, checkpoint)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="save a checkpoint every N steps")
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
