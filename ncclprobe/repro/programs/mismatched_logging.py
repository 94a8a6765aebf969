"""A small model, trained with DistributedDataParallel, that hangs when rank 0 logs a metric.

    torchrun --standalone --nproc-per-node 4 mismatched_logging.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 mismatched_logging.py --fixed  # runs to its end

Every step costs each rank one collective: DDP's all-reduce of the gradients, inside `loss.backward()`. Every 400 steps
the mean loss over all ranks is logged, which costs a second one. Only rank 0 logs, so the author put the whole thing
under `if rank == 0` (see `report`), and there rank 0 leaves the sequence of collectives that all ranks must share:

              ...  400th step   next
    rank 0    ...  all-reduce   all-gather   waits in step 400 for three all-gathers that never come
    rank 1-3  ...  all-reduce   all-reduce   wait in step 401 for the gradients of rank 0

No error, no crash, no log line. On GPUs the utilisation even stays at 100 percent, because a collective that waits is a
kernel that spins. When the timeout fires, 30 minutes later, ranks 1 to 3 complain as loudly as rank 0 does.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def mean_over_ranks(value: torch.Tensor) -> float:
    """The mean of one number over all ranks. A collective: all ranks must call it, in the same order as every other."""
    values = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(values, value)
    return float(torch.stack(values).mean())


def log(step: int, mean_loss: float) -> None:
    print(f"step {step} mean loss over all ranks {mean_loss:.4f}")


def report(step: int, loss: torch.Tensor, rank: int) -> None:
    """Log the mean loss, the way it hangs."""
    # The `if` is meant for the log line, and the collective slipped in with it. The other ranks go on to the next step.
    if rank == 0:
        log(step, mean_over_ranks(loss))  # planted: a collective that only rank 0 calls


def report_fixed(step: int, loss: torch.Tensor, rank: int) -> None:
    """Log the mean loss, the way it works: every rank takes part in the collective, one of them prints."""
    mean_loss = mean_over_ranks(loss)
    if rank == 0:
        log(step, mean_loss)


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; every `args.at_step` of them the mean loss is reported."""
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
        print(f"step {step} loss {loss.item():.4f}")
        if step % args.at_step == 0:
            if args.fixed:
                report_fixed(step, loss.detach(), rank)
            else:
                report(step, loss.detach(), rank)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="report the mean loss every N steps")
    parser.add_argument("--steps", type=int, help="how long to train; default: 100 steps past the report")
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
