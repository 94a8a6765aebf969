"""One rank is five times slower than the others. The job crawls, but nothing hangs.

    torchrun --standalone --nproc-per-node 4 straggler.py          # slow from step 400 on, for a quarter of an hour
    torchrun --standalone --nproc-per-node 4 straggler.py --fixed  # runs to its end in seconds

From the outside it looks like a hang: whenever you look, ranks 0, 2 and 3 wait in an all-reduce and rank 1 does not.
Two looks tell: between them every rank has got further. A restart would cost hours and change nothing.
"""

import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def augment(inputs: torch.Tensor, is_slow: bool) -> torch.Tensor:
    """Prepare the batch: 20 ms of work, or 100 on a processor that was throttled because it is too hot."""
    time.sleep(0.1 if is_slow else 0.02)  # planted: five times slower on one rank, but it ends
    return inputs + 0.01 * torch.randn_like(inputs)


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; from step `args.at_step` on rank 1 is slow, unless somebody has repaired its fan."""
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, args.steps + 1):
        is_slow = dist.get_rank() == 1 and step >= args.at_step and not args.fixed
        inputs = augment(torch.randn(16, 32, device=device), is_slow)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="rank 1 becomes slow in step N")
    parser.add_argument("--steps", type=int, help="how long to train; default: 10_000 steps past that")
    parser.add_argument("--backend", choices=["auto", "gloo", "nccl"], default="auto")
    parser.add_argument("--fixed", action="store_true", help="run the repaired program")
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
