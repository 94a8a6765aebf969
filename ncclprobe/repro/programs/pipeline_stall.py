"""A model cut into stages, one a rank (pipeline parallelism), that hangs when two stages both send first.

    torchrun --standalone --nproc-per-node 2 pipeline_stall.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 2 pipeline_stall.py --fixed  # runs to its end

Once the pipeline is full, each stage does the forward pass of a new micro-batch and the backward pass of an older one
in every step. Then neighbours have something for each other: activations go to the next stage, gradients to the one
before. As long as both go into one batch of sends and recvs, the order does not matter. At step 400 there is a
micro-batch of another size, for which the author sends one at a time, "to keep it simple":

    rank 0    sends activations to rank 1     waits until rank 1 receives
    rank 1    sends gradients to rank 0       waits until rank 0 receives

A send may wait until the other end receives, so two neighbours that both send first wait for each other, and in a
longer pipeline every other stage waits for them. With NCCL small messages get through all the same, so that it hangs in
production only.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist

SIZE = 1024


def swap(activations: torch.Tensor, gradients: torch.Tensor) -> None:
    """Activations to the next stage, gradients to the one before, and theirs in return; all at once."""
    rank, is_last = dist.get_rank(), dist.get_rank() == dist.get_world_size() - 1
    operations = []
    if rank > 0:
        operations.append(dist.P2POp(dist.isend, gradients, rank - 1))
        operations.append(dist.P2POp(dist.irecv, torch.empty_like(activations), rank - 1))
    if not is_last:
        operations.append(dist.P2POp(dist.isend, activations, rank + 1))
        operations.append(dist.P2POp(dist.irecv, torch.empty_like(gradients), rank + 1))
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def swap_one_at_a_time(activations: torch.Tensor, gradients: torch.Tensor) -> None:
    """The same, the way it hangs: every stage sends before it receives."""
    rank, is_last = dist.get_rank(), dist.get_rank() == dist.get_world_size() - 1
    if rank > 0:
        dist.send(gradients, rank - 1)  # planted: the stage before is in its own send, and receives nothing until then
        dist.recv(torch.empty_like(activations), rank - 1)
    if not is_last:
        dist.send(activations, rank + 1)
        dist.recv(torch.empty_like(gradients), rank + 1)


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps of a full pipeline."""
    for step in range(1, args.steps + 1):
        activations, gradients = torch.randn(SIZE, device=device), torch.randn(SIZE, device=device)
        if step == args.at_step and not args.fixed:
            swap_one_at_a_time(activations, gradients)
        else:
            swap(activations, gradients)
        print(f"step {step} activations {activations.mean().item():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the step that sends one at a time")
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
