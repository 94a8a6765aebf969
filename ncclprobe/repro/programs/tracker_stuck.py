"""Rank 0 reports the loss to an experiment tracker whose server accepts connections and never answers.

    torchrun --standalone --nproc-per-node 4 tracker_stuck.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 tracker_stuck.py --fixed  # runs to its end

    rank 0       waits in `Tracker.log` for an answer over HTTP, in no collective
    other ranks  wait in the all-reduce of the next step, for the gradients of rank 0

Connecting went well, so no error tells of the dead server. A request without a timeout waits for its answer for ever.
"""

import argparse
import http.client
import json
import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Tracker:
    """Reports metrics over HTTP, the way it hangs."""

    def __init__(self, port: int, timeout_s: float | None = None) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)

    def log(self, metrics: dict[str, float]) -> None:
        """Send the metrics; come back when the server has answered."""
        self.connection.request("POST", "/metrics", json.dumps(metrics))
        self.connection.getresponse()  # planted: no timeout, and the server does not answer


class TrackerFixed(Tracker):
    """The same, the way it works: a metric that is lost costs less than a job that hangs."""

    def __init__(self, port: int) -> None:
        super().__init__(port, timeout_s=1)

    def log(self, metrics: dict[str, float]) -> None:
        """Send the metrics, or give up after the timeout."""
        try:
            super().log(metrics)
        except OSError as error:
            print(f"the tracker did not take {metrics}: {error}")
            self.connection.close()


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; every `args.at_step` of them rank 0 reports the loss."""
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    # The tracker's server, hung: the kernel still takes connections for it, up to the backlog.
    with socket.create_server(("127.0.0.1", 0)) as server:
        tracker = (TrackerFixed if args.fixed else Tracker)(port=server.getsockname()[1])
        for step in range(1, args.steps + 1):
            inputs = torch.randn(16, 32, device=device)
            loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}")
            if step % args.at_step == 0 and dist.get_rank() == 0:
                tracker.log({"loss": loss.item()})


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="report the loss every N steps")
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
