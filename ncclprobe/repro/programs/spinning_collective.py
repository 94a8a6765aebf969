"""All GPUs but one are at 100 percent, and nothing happens: a collective that waits is a kernel that spins.

    torchrun --standalone --nproc-per-node 4 spinning_collective.py          # hangs at step 400; needs GPUs
    torchrun --standalone --nproc-per-node 4 spinning_collective.py --fixed  # runs to its end

    rank 1       waits in `read_batch` for a file that never comes; its GPU is idle: 0 percent
    other ranks  are in the all-reduce of that step: their GPUs ask the one of rank 1 for its share, again and again,
                 and `nvidia-smi` shows 100 percent. Memory traffic and power stay low.

Whoever looks for the idle GPU finds the rank to look at. Whoever looks for the busy ones finds its victims.
"""

import argparse
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def read_batch(path: Path) -> torch.Tensor:
    """The batch that another process puts there, the way it hangs: wait for it as long as it takes."""
    while not path.exists():
        time.sleep(0.05)  # planted: nobody writes this file
    return torch.load(path)


def read_batch_fixed(path: Path) -> torch.Tensor:
    """The same, the way it works: after a while train on noise. Better still: let all ranks end, with one error."""
    deadline = time.monotonic() + 2
    while not path.exists():
        if time.monotonic() > deadline:
            return torch.randn(16, 32)
        time.sleep(0.05)
    return torch.load(path)


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps. For rank 1 the file of step `args.at_step` is missing."""
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    read = read_batch_fixed if args.fixed else read_batch
    with tempfile.TemporaryDirectory() as directory:
        batch = Path(directory) / "batch.pt"
        torch.save(torch.randn(16, 32), batch)
        for step in range(1, args.steps + 1):
            is_missing = dist.get_rank() == 1 and step == args.at_step
            inputs = read(batch.with_name("missing.pt") if is_missing else batch).to(device)
            loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the file is missing in step N")
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
