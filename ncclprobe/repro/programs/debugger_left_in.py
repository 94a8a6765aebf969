"""A `breakpoint()` that was left in, and is reached on one rank: it waits for somebody to type.

    torchrun --standalone --nproc-per-node 4 debugger_left_in.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 debugger_left_in.py --fixed  # runs to its end

    rank 1       waits at the prompt of pdb, which goes to a log file that nobody looks at
    other ranks  wait in the all-reduce of the next step, for the gradients of rank 1

Where the standard input is closed, as under most schedulers, the debugger ends the rank at once instead (`BdbQuit`).
From a terminal, under `srun --pty` or in a container with `-it` it stays open, and the job hangs.
"""

import argparse
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def check(step: int, loss: torch.Tensor, is_suspicious: bool) -> None:
    """Look at a loss that is suspicious, the way it hangs."""
    if is_suspicious:
        breakpoint()  # planted: only this rank gets here, and nobody types


def check_fixed(step: int, loss: torch.Tensor, is_suspicious: bool) -> None:
    """The same, the way it works: write down what you want to see, and go on."""
    if is_suspicious:
        print(f"step {step} suspicious loss {loss.item():.4f}, norm of its gradient function {loss.grad_fn}")


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; the loss of rank 1 is suspicious in step `args.at_step`."""
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
        is_suspicious = dist.get_rank() == 1 and step == args.at_step
        if args.fixed:
            check_fixed(step, loss, is_suspicious)
        else:
            check(step, loss, is_suspicious)


def open_terminal() -> None:
    """Make a terminal that nobody types at the standard input, as if torchrun had been started from one."""
    _, terminal = os.openpty()
    sys.stdin = os.fdopen(terminal)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the loss is suspicious at step N")
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
    open_terminal()
    train(args, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
