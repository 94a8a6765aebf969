"""Rank 0 saves a checkpoint, shard by shard, and takes longer than the others are told to wait. Nothing is stuck.

    torchrun --standalone --nproc-per-node 4 slow_checkpoint.py          # fails after step 400
    torchrun --standalone --nproc-per-node 4 slow_checkpoint.py --fixed  # runs to its end

Somebody set a short timeout, so that hangs are noticed early. The model grew, and a save now takes 8 seconds:

    rank 0       saves shard 1, 2, 3 ...
    other ranks  wait 5 seconds in `dist.barrier`, report a timeout and end; the launcher ends the job

All errors come from the others. The rank that kept them waiting did its work, and reports no error of its own. Its log
tells: shard after shard is written, also after the first of the others gave up.
"""

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SHARDS = 16


def save(state: dict[str, torch.Tensor], directory: Path) -> None:
    """Save the model in shards: half a second each, on storage that is slow but works."""
    # A torn checkpoint is worse than none: finish it, even when the launcher wants to end the job.
    signal.signal(signal.SIGTERM, lambda *_: logging.warning("told to end, but the checkpoint is not complete yet"))
    for shard in range(1, SHARDS + 1):
        time.sleep(0.5)
        torch.save(state, directory / f"{shard}.pt")
        logging.info("saving checkpoint: shard %d/%d written", shard, SHARDS)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def checkpoint(model: nn.Module, directory: Path, group: dist.ProcessGroup) -> None:
    """Rank 0 saves, the others wait for it: for as long as the timeout of `group` allows."""
    if dist.get_rank() == 0:
        save(model.state_dict(), directory)
    dist.barrier(group)  # planted: the timeout of this group is shorter than a save


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; every `args.at_step` of them the model is saved."""
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    impatient = dist.new_group(timeout=timedelta(seconds=5))
    patient = dist.new_group(timeout=timedelta(minutes=30))  # the repair: a timeout for saves alone
    with tempfile.TemporaryDirectory() as directory:
        for step in range(1, args.steps + 1):
            inputs = torch.randn(16, 32, device=device)
            loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}")
            if step == args.at_step:
                checkpoint(network, Path(directory), patient if args.fixed else impatient)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="save a checkpoint every N steps")
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
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, stream=sys.stdout)
    dist.init_process_group(backend, timeout=timedelta(minutes=30))
    train(args, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
