"""A job in which nothing is wrong, for comparison: every report of a hang that is none costs a restart.

    torchrun --standalone --nproc-per-node 4 healthy.py          # trains for some minutes
    torchrun --standalone --nproc-per-node 4 healthy.py --fixed  # trains for some seconds

Look at it at any moment and some ranks wait in a collective while others do not: that is what training looks like. Only
two looks tell that it goes on.
"""

import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps of some 20 ms."""
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, args.steps + 1):
        inputs = torch.randn(16, 32, device=device)
        time.sleep(0.02)  # planted: nothing; this stands for a larger model
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the step from which on it is looked at")
    parser.add_argument("--steps", type=int, help="how long to train; default: 10_000 steps past that")
    parser.add_argument("--backend", choices=["auto", "gloo", "nccl"], default="auto")
    parser.add_argument("--fixed", action="store_true", help="end 100 steps past that")
    args = parser.parse_args()
    args.steps = args.at_step + (100 if args.fixed else 10_000) if args.steps is None else args.steps
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
