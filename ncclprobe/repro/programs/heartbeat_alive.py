"""A rank whose heart beats on while its training has stopped: a thread says that it lives, and it does.

    torchrun --standalone --nproc-per-node 4 heartbeat_alive.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 heartbeat_alive.py --fixed  # runs to its end

    heartbeat of every rank  beats twice a second, from a thread of its own: the monitor shows all ranks green
    rank 1                   waits in `teacher_output` for a file that the teacher model will never write
    other ranks              wait in the all-reduce of their gradients, for those of rank 1

A process that lives is not a step that ends. The heartbeat must carry the progress (the step), or be sent by the
training loop: then it stops when training does.
"""

import argparse
import os
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def beat(path: Path, is_over: threading.Event) -> None:
    """Say that this rank lives, twice a second, until training is over."""
    while not is_over.wait(0.5):
        path.write_text(f"alive at {time.time():.1f}\n")


def teacher_output(path: Path) -> torch.Tensor:
    """What the teacher model says of this step's batch, the way it hangs: wait for it as long as it takes."""
    while not path.exists():
        time.sleep(0.05)  # planted: the teacher model never writes this one
    return torch.load(path)


def teacher_output_fixed(path: Path) -> torch.Tensor:
    """The same, the way it works: after a while train without it (all ones weigh every sample the same)."""
    deadline = time.monotonic() + 2
    while not path.exists():
        if time.monotonic() > deadline:
            return torch.ones(16, 1)
        time.sleep(0.05)
    return torch.load(path)


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps. For rank 1 the teacher's file of step `args.at_step` is missing."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as directory:
        is_over = threading.Event()
        heart = threading.Thread(target=beat, args=(Path(directory) / "heartbeat", is_over), daemon=True)
        heart.start()
        weights = Path(directory) / "teacher.pt"
        torch.save(torch.ones(16, 1), weights)
        for step in range(1, args.steps + 1):
            inputs = torch.randn(16, 32, device=device)
            path = weights if rank != 1 or step != args.at_step else weights.with_name("missing.pt")
            weight = (teacher_output_fixed if args.fixed else teacher_output)(path).to(device)
            loss = ((model(inputs) - inputs.sum(dim=1, keepdim=True)).square() * weight).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}")
        is_over.set()
        heart.join()


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the file is missing in step N")
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
