"""A thread of rank 1 is in a C function that keeps the interpreter lock (GIL), so no other thread of it can run Python.

    torchrun --standalone --nproc-per-node 4 gil_held.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 gil_held.py --fixed  # runs to its end

    thread of rank 1       waits in C for an answer that never comes, with the GIL in hand
    main thread of rank 1  waits for the GIL, wherever it just was: its own line is innocent
    other ranks            wait in the all-reduce of the next step, for the gradients of rank 1

Nothing inside that process can tell: no heartbeat, no signal handler, no watchdog written in Python runs any more.
Only a look from outside shows which thread has the lock, and in what.
"""

import argparse
import ctypes
import os
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# `PyDLL` keeps the GIL during a call, like a C extension that forgets Py_BEGIN_ALLOW_THREADS. `CDLL` releases it.
UPLOADER = ctypes.PyDLL(None)
UPLOADER_FIXED = ctypes.CDLL(None)


def upload(uploader: ctypes.CDLL) -> None:
    """Upload the metrics with a library in C. `pause` stands for a server that does not answer: it never returns."""
    uploader.pause()  # planted: a C function that waits with the GIL in hand


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; after step `args.at_step` rank 1 uploads, in a thread of its own."""
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
        if step == args.at_step and dist.get_rank() == 1:
            uploader = UPLOADER_FIXED if args.fixed else UPLOADER
            threading.Thread(target=upload, args=(uploader,), daemon=True).start()


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="upload after step N")
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
