"""A small training that stops early, and hangs because each rank decides for itself when that is.

    torchrun --standalone --nproc-per-node 3 early_stop.py          # hangs after step 400
    torchrun --standalone --nproc-per-node 3 early_stop.py --fixed  # all ranks stop together, and it ends

Training ends when the loss on held-out data does not improve any more. But every rank has its own share of that data,
and so its own opinion. After step 400 rank 1 has seen enough. It leaves the loop and waits for the others at the
barrier behind it, while they wait for it in the gradients of step 401:

              ...  step 400                step 401
    rank 0    ...  all-reduce              all-reduce   waits for the gradients of rank 1
    rank 1    ...  all-reduce   (break)    barrier      waits for everybody to be done
    rank 2    ...  all-reduce              all-reduce   waits for the gradients of rank 1

Whatever ends a loop that communicates must be agreed upon by all ranks, in the same step.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PATIENCE = 3


class EarlyStop:
    """Says when the loss on this rank's held-out data has not improved for PATIENCE steps."""

    def __init__(self) -> None:
        self.best = float("inf")
        self.steps_without_progress = 0

    def is_over(self, loss: float) -> bool:
        """Whether to stop now. The answer of this rank alone."""
        self.steps_without_progress = 0 if loss < self.best else self.steps_without_progress + 1
        self.best = min(self.best, loss)
        return self.steps_without_progress >= PATIENCE


def held_out_loss(step: int, args: argparse.Namespace) -> float:
    """Stands for an evaluation on this rank's share: the one of rank 1 gets no better in the steps up to `at_step`."""
    last_progress: int = args.at_step - PATIENCE if dist.get_rank() == 1 else args.steps
    return 1 / min(step, last_progress)


def does_any_rank_stop(wants_to_stop: bool, device: torch.device) -> bool:
    """One answer for all ranks. A collective: all ranks must call it, in every step."""
    votes = torch.tensor(float(wants_to_stop), device=device)
    dist.all_reduce(votes, op=dist.ReduceOp.MAX)
    return bool(votes.item())


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps, or fewer; then rank 0 may save the model."""
    torch.manual_seed(dist.get_rank())  # every rank draws other data; DDP gives them all the weights of rank 0
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    early_stop = EarlyStop()
    for step in range(1, args.steps + 1):
        inputs = torch.randn(16, 32, device=device)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")
        wants_to_stop = early_stop.is_over(held_out_loss(step, args))
        if args.fixed:
            wants_to_stop = does_any_rank_stop(wants_to_stop, device)
        if wants_to_stop:
            break  # planted: this rank alone leaves the loop; the others go on to the next step
    dist.barrier()  # all ranks are done: the model may be saved


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the step after which rank 1 wants to stop")
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
