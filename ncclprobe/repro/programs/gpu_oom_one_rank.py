"""One rank gets a batch that does not fit into the memory of its GPU, and ends. The others wait for it.

    torchrun --standalone --nproc-per-node 4 gpu_oom_one_rank.py          # fails at step 400; needs GPUs
    torchrun --standalone --nproc-per-node 4 gpu_oom_one_rank.py --fixed  # runs to its end

    rank 1       raises torch.OutOfMemoryError in its forward pass, and exits
    other ranks  are in the all-reduce of that step; torchrun ends them. Under a launcher that does not, they hang until
                 their timeout, and report that: half an hour later, and louder than the one line of rank 1

Batches of different lengths do this to one rank only, at some step that nobody can repeat.
"""

import argparse
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROWS, MANY_ROWS = 16, 2**24  # the activations of the latter take 4 GiB and more
MEMORY_BYTES = 2 * 2**30  # of the GPU, that this program allows itself: a stand-in for a small one


def forward(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """The loss of a batch, the way it fails: all rows at once, however many there are."""
    return nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))  # planted: too many rows


def forward_fixed(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """The same, the way it works: no more rows than fit. What was left out may come in the next batch."""
    return forward(model, inputs[:4096])


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; the batch of rank 1 in step `args.at_step` is long."""
    torch.manual_seed(dist.get_rank())
    total_bytes = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, MEMORY_BYTES / total_bytes), device)
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, args.steps + 1):
        is_long = dist.get_rank() == 1 and step == args.at_step
        # `expand` takes no memory: the rows of a long batch are one and the same.
        inputs = torch.randn(1, 32, device=device).expand(MANY_ROWS if is_long else ROWS, 32)
        loss = (forward_fixed if args.fixed else forward)(model, inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the long batch comes in step N")
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
