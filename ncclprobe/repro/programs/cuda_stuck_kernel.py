"""A kernel of rank 1 does not end: its GPU is at 100 percent like all the others, but not in a collective.

    torchrun --standalone --nproc-per-node 4 cuda_stuck_kernel.py          # hangs at step 400; needs GPUs
    torchrun --standalone --nproc-per-node 4 cuda_stuck_kernel.py --fixed  # runs to its end

    rank 1       waits in `torch.cuda.synchronize` for a kernel of its own; the all-reduce behind it never starts
    other ranks  wait in the all-reduce of that step, for the gradients of rank 1

From Python all of them look the same: they wait for their GPU. What tells them apart is that rank 1 has not issued the
collective that the others are in.
"""

import argparse
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MILLISECOND = 1_500_000  # in cycles of a GPU at 1.5 GHz
FOR_EVER = 2**62


def augment(inputs: torch.Tensor, cycles: int) -> torch.Tensor:
    """Augment a batch with a kernel that takes so many cycles of the GPU: a loop that waits for a flag, say."""
    torch.cuda._sleep(cycles)
    torch.cuda.synchronize()  # planted: the kernel before this line does not end
    return inputs + 0.01 * torch.randn_like(inputs)


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps. In step `args.at_step` the kernel of rank 1 does not end, unless it was repaired."""
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, args.steps + 1):
        is_stuck = dist.get_rank() == 1 and step == args.at_step and not args.fixed
        inputs = augment(torch.randn(16, 32, device=device), FOR_EVER if is_stuck else MILLISECOND)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the kernel of step N does not end")
    parser.add_argument("--steps", type=int, help="how long to train; default: 100 steps past that")
    parser.add_argument("--backend", choices=["auto", "nccl"], default="auto", help="NCCL, whatever is said here")
    parser.add_argument("--fixed", action="store_true", help="run the repaired program")
    args = parser.parse_args()
    args.steps = args.at_step + 100 if args.steps is None else args.steps
    return args


def main() -> None:
    args = parse_args()
    if not torch.cuda.is_available():
        sys.exit(f"{os.path.basename(__file__)} needs an NVIDIA GPU: there is none here that torch can use")
    if torch.cuda.device_count() < int(os.environ["LOCAL_WORLD_SIZE"]):
        # Two ranks of one host on one GPU are refused by NCCL, so each says that it is a host of its own.
        os.environ["NCCL_HOSTID"] = f"rank{os.environ['RANK']}"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=timedelta(minutes=30))
    train(args, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
