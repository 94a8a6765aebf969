"""A field cut into slabs, one a rank, that hangs when one rank leaves out the exchange with its neighbours.

    torchrun --standalone --nproc-per-node 2 p2p_mismatch.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 2 p2p_mismatch.py --fixed  # runs to its end

In every step neighbours send each other the row at the edge of their slab, and an all-reduce then adds up how much has
changed. At step 400 nothing has changed in the slab of rank 1. It has no news for its neighbours, so the author spares
the exchange. But the neighbours do not know that, and each send needs a recv, each recv a send:

              ...  step 400
    rank 0    ...  send to rank 1                waits until rank 1 receives
    rank 1    ...  (nothing)        all-reduce   waits for the sum of rank 0

Whether two ranks talk to each other must be decided alike at both ends. With more ranks it takes the whole job: rank 2
waits for rank 1 too, rank 3 for rank 2, and so on.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist


def exchange(slab: torch.Tensor) -> None:
    """Fill the first and the last row with the neighbours' rows. All neighbours must take part.

    A send may wait for its recv: even ranks send first and odd ones receive first, so that the two always meet.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for neighbour, own_row, their_row in ((rank - 1, slab[1], slab[0]), (rank + 1, slab[-2], slab[-1])):
        if not 0 <= neighbour < world_size:
            continue
        if rank % 2 == 0:
            dist.send(own_row.clone(), neighbour)
            dist.recv(their_row, neighbour)
        else:
            dist.recv(their_row, neighbour)
            dist.send(own_row.clone(), neighbour)


def change_of(slab: torch.Tensor, step: int, args: argparse.Namespace) -> torch.Tensor:
    """Stands for how much the slab has changed: nothing on rank 1 at step `at_step`."""
    is_at_rest = step == args.at_step and dist.get_rank() == 1
    return torch.zeros((), device=slab.device) if is_at_rest else slab.std()


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps."""
    torch.manual_seed(dist.get_rank())
    slab = torch.rand(16, 64, device=device)
    for step in range(1, args.steps + 1):
        change = change_of(slab, step, args)
        if change > 0 or args.fixed:
            exchange(slab)
            dist.all_reduce(change)
        else:
            dist.all_reduce(change)  # planted: this rank comes here without the exchange that its neighbours wait in
        slab[1:-1] = (slab[:-2] + slab[2:]) / 2
        print(f"step {step} change {change.item():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the step at which nothing changes on rank 1")
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
