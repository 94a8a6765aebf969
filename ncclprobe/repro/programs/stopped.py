"""A rank that is stopped by a signal: it lives, does nothing, and will do nothing until somebody sends SIGCONT.

    torchrun --standalone --nproc-per-node 4 stopped.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 stopped.py --fixed  # runs to its end

Schedulers suspend jobs with SIGSTOP, debuggers and profilers leave processes stopped, and so does Ctrl-Z. Here the rank
does it to itself, which looks the same from outside:

    rank 1       state T in ps and top; its stack is wherever it happened to be
    other ranks  wait in the all-reduce of their gradients, for those of rank 1

No log line, no CPU, no error. `kill -CONT PID` lets it go on, as if nothing had been.
"""

import argparse
import os
import signal
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def profile(step: int, at_step: int) -> None:
    """What a profiler does that stops its target to look into it and then fails to let it go."""
    if dist.get_rank() == 1 and step == at_step:
        os.kill(os.getpid(), signal.SIGSTOP)  # planted: nobody sends SIGCONT


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps. In step `args.at_step` rank 1 is stopped."""
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, args.steps + 1):
        if not args.fixed:
            profile(step, args.at_step)
        inputs = torch.randn(16, 32, device=device)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the step in which a rank is stopped")
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
