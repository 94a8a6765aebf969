"""A rank catches an exception in the middle of a step and goes on with the next one: it is out of step from then on.

    torchrun --standalone --nproc-per-node 4 exception_swallowed.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 exception_swallowed.py --fixed  # runs to its end

Every step ends with the accuracy over all ranks: one all-reduce for the gradients, one all-gather for the counts. A
label that is not a number makes the count fail on one rank, where somebody once wrote `except ValueError`:

                    step 400                        step 401
    rank 1          all-reduce  (exception, caught)  all-reduce   waits in its next backward
    other ranks     all-reduce  all-gather                        wait for the counts of rank 1

To skip a bad sample is fine. To skip a collective is not: an exception between two collectives must end the rank, or
be dealt with so that the rank still makes every call.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def count_right(step: int, args: argparse.Namespace) -> float:
    """How many answers were right. Rank 1 has a bad label in step `args.at_step`."""
    label = "7?" if dist.get_rank() == 1 and step == args.at_step else "7"
    return float(int(label) == 7)


def accuracy(right: float, device: torch.device) -> float:
    """Over all ranks. A collective: all ranks must call it."""
    counts = [torch.empty(1, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([right], device=device))  # planted: the call that rank 1 never makes
    return float(torch.stack(counts).mean())


def evaluate(step: int, args: argparse.Namespace, device: torch.device) -> None:
    """The accuracy of this step, the way it hangs."""
    try:
        print(f"step {step} accuracy {accuracy(count_right(step, args), device):.2f}")
    except ValueError as error:
        print(f"bad label in step {step}, skipped: {error}")


def evaluate_fixed(step: int, args: argparse.Namespace, device: torch.device) -> None:
    """The same, the way it works: what may fail is done first, and the collective is called whatever came of it."""
    try:
        right = count_right(step, args)
    except ValueError as error:
        print(f"bad label in step {step}, counted as wrong: {error}")
        right = 0.0
    print(f"step {step} accuracy {accuracy(right, device):.2f}")


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps, each with its accuracy."""
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
        (evaluate_fixed if args.fixed else evaluate)(step, args, device)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the step with a bad label")
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
