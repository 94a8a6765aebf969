"""A healthy program, one of whose ranks was told a network interface that does not lead to the other hosts.

    GLOO_SOCKET_IFNAME=docker0 RANK=1 ... python wrong_interface.py       # and the others with eth1: does not start
    GLOO_SOCKET_IFNAME=eth1 RANK=1 ... python wrong_interface.py --fixed  # runs to its end

Every host with Docker has `docker0`, a bridge for its own containers. So the address that rank 1 gives the others (with
NCCL by NCCL_SOCKET_IFNAME) is one to which no host knows the way:

    rank 1       listens on its docker0, where nobody can come from
    other ranks  try to connect to it, and what they send is lost on the way, without any answer

The rendezvous works, because the store is reached by its address, whatever the interface. `--fixed` changes nothing in
this file: what is repaired is the environment of rank 1.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps."""
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


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="when the training ends: 100 steps past this one")
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
    print(f"joining as rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}")
    dist.init_process_group(backend, timeout=timedelta(minutes=30))
    train(args, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
