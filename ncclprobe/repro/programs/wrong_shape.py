"""A layer split over the ranks (tensor parallelism) that hangs when the last batch of one rank is short.

    torchrun --standalone --nproc-per-node 3 wrong_shape.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 3 wrong_shape.py --fixed  # runs to its end

Every rank works out its part of the layer's output, for the whole batch, and an all-reduce adds the parts up. At step
400 the data of rank 1 runs out in the middle of a batch. Nobody pads it, so rank 1 joins the all-reduce with half the
rows:

              ...  step 400                    step 401
    rank 0    ...  all-reduce of 3072 rows                        waits for more from rank 1
    rank 1    ...  all-reduce of 1536 rows     all-reduce ...     is done with a part of the sum, and goes on
    rank 2    ...  all-reduce of 3072 rows                        waits for more from rank 1

The same call, from the same line, in the same step: only the size differs. No backend compares sizes. NCCL hangs like
this, or ends with wrong numbers. gloo hangs when it cuts both sizes into whole pieces of 1 MiB, as it does here; with
other sizes it aborts a process ("Received data size doesn't match expected size"), and not always the guilty one.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist

COLUMNS = 1024  # rows of 4 KiB: a full batch has 4 MiB for every rank, which gloo sends in pieces of 1 MiB
ROWS_PER_RANK = 1024


def next_batch(step: int, args: argparse.Namespace, device: torch.device) -> torch.Tensor:
    """The rows to work on; half a batch for rank 1 at step `at_step`."""
    rows = ROWS_PER_RANK * dist.get_world_size()
    is_short = step == args.at_step and dist.get_rank() == 1
    return torch.ones(rows // 2 if is_short else rows, COLUMNS, device=device)


def padded(batch: torch.Tensor) -> torch.Tensor:
    """The repair: rows of zeros up to the full size, so that all ranks have the same."""
    missing = ROWS_PER_RANK * dist.get_world_size() - len(batch)
    return torch.nn.functional.pad(batch, (0, 0, 0, missing))


def add_up(part: torch.Tensor) -> torch.Tensor:
    """The sum of all ranks' parts. A collective: all ranks must call it, with tensors of one size."""
    dist.all_reduce(part)  # planted: on one rank with fewer rows than on all others
    return part


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps."""
    weight = torch.full((COLUMNS,), 0.5, device=device)  # this rank's part of the layer
    for step in range(1, args.steps + 1):
        batch = next_batch(step, args, device)
        if args.fixed:
            batch = padded(batch)
        output = add_up(batch * weight)
        weight = weight * 0.999
        print(f"step {step} output {output.mean().item():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the step at which the batch of rank 1 is short")
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
