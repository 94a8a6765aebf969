"""A rank whose checkpoint code crashes in C, while the others wait until every rank has saved its part.

    for RANK in 0 1 2 3; do ... python crashed.py & done          # one rank crashes at step 400, three hang
    for RANK in 0 1 2 3; do ... python crashed.py --fixed & done  # runs to its end

Started as srun starts ranks: by themselves, so that the end of one ends no other (torchrun would end them all).

    rank 1       writes its part through a C library, which reads where there is no memory: SIGSEGV
    other ranks  wait in the key-value store for the word that rank 1 has saved, for up to 30 minutes

Nobody has lost a connection that is in use, so nobody sees an error. That rank 1 is dead is told by what it left: the
end of its own log (with faulthandler: the line), and the kernel's log, which has its pid.
"""

import argparse
import ctypes
import faulthandler
import os
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def compress(part: bytes, size_bytes: int) -> bytes:
    """What a C library does with a buffer, the way it crashes: it is told a size and does not look whether it is so."""
    buffer = ctypes.create_string_buffer(part, len(part))
    return ctypes.string_at(ctypes.addressof(buffer), size_bytes)  # planted: reads beyond the end of the buffer


def save(step: int, directory: Path, part: bytes, size_bytes: int) -> None:
    """Save this rank's part of a checkpoint, and wait until all have: by the key-value store, without a collective."""
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    (directory / f"part-{rank}").write_bytes(compress(part, size_bytes))
    store.set(f"saved/{step}/{rank}", "yes")
    store.wait([f"saved/{step}/{other}" for other in range(dist.get_world_size())], timedelta(minutes=30))


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps, with a checkpoint after `args.at_step` of them. The index of rank 1 has a wrong size."""
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
        if step == args.at_step:
            part = torch.cat([weight.detach().flatten() for weight in model.parameters()]).cpu().numpy().tobytes()
            is_wrong = dist.get_rank() == 1 and not args.fixed
            with tempfile.TemporaryDirectory() as directory:
                save(step, Path(directory), part, (1 << 30) if is_wrong else len(part))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="save a checkpoint after step N")
    parser.add_argument("--steps", type=int, help="how long to train; default: 100 steps past that")
    parser.add_argument("--backend", choices=["auto", "gloo", "nccl"], default="auto")
    parser.add_argument("--fixed", action="store_true", help="run the repaired program")
    args = parser.parse_args()
    args.steps = args.at_step + 100 if args.steps is None else args.steps
    return args


def main() -> None:
    args = parse_args()
    faulthandler.enable()  # a crash in C prints the Python line it came from
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
