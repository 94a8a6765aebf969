"""A small training that hangs when one rank starts its two metrics in the other order.

    torchrun --standalone --nproc-per-node 3 wrong_order.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 3 wrong_order.py --fixed  # runs to its end

After each step two metrics are collected over all ranks: the losses with an all-gather, the largest gradient with an
all-reduce. Both are started at once, so that they overlap. When the gradients of a rank overflow, the largest one is
the more urgent news, and so the author starts that one first. At step 400 this happens on rank 1, and on rank 1 only:

              ...  step 400
    rank 0    ...  all-gather, all-reduce    the first is held up by rank 1
    rank 1    ...  all-reduce, all-gather    the first is held up by the others
    rank 2    ...  all-gather, all-reduce    the first is held up by rank 1

All ranks make the same calls, and equally many of them. But collectives have no names: they are paired in the order in
which each rank starts them, so the order must be the same everywhere. Other ways to get there: a loop over a `set` of
names (hash order differs between processes), a dict that ranks fill in different order, threads.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def report(loss: torch.Tensor, largest: torch.Tensor, is_fixed: bool) -> float:
    """The mean loss over all ranks, which is all that the caller wants; `largest` becomes that of all ranks."""
    losses = [torch.empty_like(loss) for _ in range(dist.get_world_size())]
    works = []
    if bool(largest.isinf()) and not is_fixed:
        works.append(dist.all_reduce(largest, dist.ReduceOp.MAX, async_op=True))  # planted: first on one rank only
        works.append(dist.all_gather(losses, loss, async_op=True))
    else:
        works.append(dist.all_gather(losses, loss, async_op=True))
        works.append(dist.all_reduce(largest, dist.ReduceOp.MAX, async_op=True))
    for work in works:
        work.wait()
    return float(torch.stack(losses).mean())


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps."""
    rank = dist.get_rank()
    torch.manual_seed(rank)  # every rank draws other data; DDP gives them all the weights of rank 0
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, args.steps + 1):
        inputs = torch.randn(16, 32, device=device)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        largest = torch.tensor(float("inf") if step == args.at_step and rank == 1 else 1.0, device=device)
        mean_loss = report(loss.detach(), largest, args.fixed)
        print(f"step {step} loss {loss.item():.4f} mean loss over all ranks {mean_loss:.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the step at which the gradients of rank 1 overflow")
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
