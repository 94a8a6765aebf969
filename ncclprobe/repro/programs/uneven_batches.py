"""A small training that hangs at the end of an epoch, because one rank has fewer batches than the others.

    torchrun --standalone --nproc-per-node 3 uneven_batches.py          # hangs after step 400
    torchrun --standalone --nproc-per-node 3 uneven_batches.py --fixed  # runs to its end

Each rank reads its own files, and the files of rank 1 hold 400 batches, those of the others some more. When rank 1 has
read them all its loop ends, and it goes on to what comes after: an all-gather of the final losses. The others are still
in the loop, where every step needs the gradients of all ranks:

              ...  step 400     next
    rank 0    ...  all-reduce   all-reduce   waits for the gradients of rank 1
    rank 1    ...  all-reduce   all-gather   waits for the final losses of the others
    rank 2    ...  all-reduce   all-reduce   waits for the gradients of rank 1

Where nothing comes after the loop, the rank exits instead. Then the others wait for a process that is gone: with gloo
they fail at once, "connection closed by peer", with NCCL they hang just the same.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def my_batches(args: argparse.Namespace, device: torch.device) -> list[torch.Tensor]:
    """What this rank's files hold."""
    count = args.at_step if dist.get_rank() == 1 else args.steps
    return [torch.randn(16, 32, device=device) for _ in range(count)]


def as_many_as_every_rank_has(batches: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """The repair: all ranks agree on the smallest number before the loop. (DDP's `join` is another one.)"""
    count = torch.tensor(len(batches), device=device)
    dist.all_reduce(count, op=dist.ReduceOp.MIN)
    return batches[: int(count)]


def mean_over_ranks(value: torch.Tensor) -> float:
    """The mean of one number over all ranks. A collective."""
    values = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(values, value)
    return float(torch.stack(values).mean())


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run one epoch: a step for each batch, then the final loss."""
    torch.manual_seed(dist.get_rank())  # every rank draws other data; DDP gives them all the weights of rank 0
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = my_batches(args, device)
    if args.fixed:
        batches = as_many_as_every_rank_has(batches, device)
    loss = torch.zeros((), device=device)
    for step, inputs in enumerate(batches, start=1):  # planted: ends on this rank while the others have batches left
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")
    final_loss = mean_over_ranks(loss.detach())
    print(f"final loss over all ranks {final_loss:.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="how many batches rank 1 has; the others have more")
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
