"""A rank that stops early and leaves in good order, while the others go on.

    torchrun --standalone --nproc-per-node 4 exited_early.py          # one rank leaves at step 400
    torchrun --standalone --nproc-per-node 4 exited_early.py --fixed  # runs to its end

Each rank watches its own loss, and stops when it has not become better for a while. The losses differ, as the batches
do, so one rank is satisfied before the others are:

    rank 1       prints that it is through, and exits with status 0
    other ranks  wait in the all-reduce of the next step: under NCCL for ever, under gloo until they see that the
                 connection to rank 1 is closed, which they call an error, and end

All errors come from the innocent. The one log without an error is that of the rank to blame.
"""

import argparse
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def has_converged(step: int, at_step: int) -> bool:
    """Whether this rank's loss is good enough: that of rank 1 is, at `at_step`."""
    return dist.get_rank() == 1 and step >= at_step


def has_converged_fixed(step: int, at_step: int, device: torch.device) -> bool:
    """The same, the way it works: all ranks stop, or none does."""
    votes = torch.tensor(float(has_converged(step, at_step)), device=device)
    dist.all_reduce(votes, op=dist.ReduceOp.MAX)
    return bool(votes)


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps, or until the loss is good enough."""
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
        if args.fixed and has_converged_fixed(step, args.at_step, device):
            break
        if not args.fixed and has_converged(step, args.at_step):
            print(f"training finished: converged at step {step}")
            sys.exit(0)  # planted: one rank decides for itself that it is through


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the step at which rank 1 is satisfied")
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
