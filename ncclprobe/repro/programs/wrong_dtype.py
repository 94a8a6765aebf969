"""An average of weights over the ranks that hangs when one rank's weights are of another type.

    torchrun --standalone --nproc-per-node 3 wrong_dtype.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 3 wrong_dtype.py --fixed  # runs to its end

Each rank trains alone, and after each step an all-reduce averages the weights. After step 399 rank 1 has reloaded its
weights from a file that another program wrote, with NumPy, and NumPy's numbers are float64 unless one asks otherwise.
From then on rank 1 joins the all-reduce with twice the bytes:

              ...  step 400                 step 401
    rank 0    ...  all-reduce of float32    all-reduce ...    is done, with nonsense, and goes on
    rank 1    ...  all-reduce of float64                      waits for the second half from the others
    rank 2    ...  all-reduce of float32    all-reduce ...    is done, with nonsense, and goes on

The same call, from the same line, with the same shape: only the type differs. No backend compares types. NCCL hangs
like this, or ends with wrong numbers. gloo hangs when it cuts both into whole pieces of 1 MiB, as it does here; with
other sizes it aborts a process ("Received data size doesn't match expected size"), and not always the guilty one.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist

SIZE_PER_RANK = 512 * 1024  # 2 MiB of float32 for every rank, which gloo sends in pieces of 1 MiB


def reload(weights: torch.Tensor) -> torch.Tensor:
    """Stands for `torch.from_numpy(numpy.load("weights.npy"))`."""
    return weights.double()


def average(weights: torch.Tensor) -> torch.Tensor:
    """The mean of all ranks' weights. A collective: all ranks must call it, with tensors of one size and type."""
    dist.all_reduce(weights)  # planted: on one rank in float64, on all others in float32
    return weights / dist.get_world_size()


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps."""
    weights = torch.ones(SIZE_PER_RANK * dist.get_world_size(), device=device)
    for step in range(1, args.steps + 1):
        if step == args.at_step and dist.get_rank() == 1:
            weights = reload(weights)
        if args.fixed:
            weights = weights.float()  # the repair: whatever the file held, the ranks agree on one type
        weights = average(weights * 0.999)
        print(f"step {step} mean weight {weights.mean().item():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the step at which rank 1 starts from a file")
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
