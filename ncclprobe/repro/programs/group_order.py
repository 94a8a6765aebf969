"""Ranks in rows and columns that hang when they do not use their two process groups in the same order.

    torchrun --standalone --nproc-per-node 4 group_order.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 4 group_order.py --fixed  # runs to its end

As in every training with two kinds of parallelism, each rank is in two groups: a row, over which a layer is split
(tensor parallelism), and a column, over which the batch is split (data parallelism):

                 column 0   column 1
    row 0        rank 0     rank 1
    row 1        rank 2     rank 3

Every step sums activations over the row and gradients over the column. They have nothing to do with each other, so the
author starts with the one whose input is ready first. At step 400 that is the column on ranks 1 and 2, the row on 0
and 3, and now each rank waits for one that waits for the next:

    rank 0 waits in row 0 for rank 1, which waits in column 1 for rank 3,
    which waits in row 1 for rank 2, which waits in column 0 for rank 0

In each group by itself every rank makes the right calls in the right order. Only the order *between* the groups
differs. No rank is to blame alone: the rule that orders the groups is.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist


def make_groups() -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """The row and the column of this rank. Every rank must create all groups, also those that it is not in."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    rows = [dist.new_group([first, first + 1]) for first in range(0, world_size - 1, 2)]
    columns = [dist.new_group(list(range(first, world_size, 2))) for first in (0, 1)]
    return rows[rank // 2], columns[rank % 2]


def is_column_ready_first(step: int, args: argparse.Namespace) -> bool:
    """Stands for a look at which input is there already."""
    return step == args.at_step and dist.get_rank() in (1, 2)


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps."""
    row, column = make_groups()
    for step in range(1, args.steps + 1):
        activations, gradients = torch.ones(64, device=device), torch.ones(256, device=device)
        if is_column_ready_first(step, args) and not args.fixed:
            dist.all_reduce(gradients, group=column)  # planted: on some ranks the column comes first, on others the row
            dist.all_reduce(activations, group=row)
        else:
            dist.all_reduce(activations, group=row)
            dist.all_reduce(gradients, group=column)
        print(f"step {step} activations {activations.mean().item():.1f} gradients {gradients.mean().item():.1f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--at-step", type=int, default=400, help="the step at which ranks 1 and 2 start with their column"
    )
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
