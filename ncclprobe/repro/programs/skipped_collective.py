"""A small language-model-like training that hangs when one rank's batch holds nothing but padding.

    torchrun --standalone --nproc-per-node 3 skipped_collective.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 3 skipped_collective.py --fixed  # runs to its end

Every step costs each rank two collectives: an all-gather that counts the tokens of all ranks, by which the loss is
divided, and DDP's all-reduce of the gradients, inside `loss.backward()`. At step 400 all texts in the batch of rank 1
are empty. There is nothing to learn from it, so the author put a `continue` there, and rank 1 jumps over the second
collective, to the first one of its next step:

              ...  step 400                next
    rank 0    ...  all-gather  all-reduce                waits for the gradients of rank 1
    rank 1    ...  all-gather  (continue)  all-gather    waits in step 401 for the token counts of the others
    rank 2    ...  all-gather  all-reduce                waits for the gradients of rank 1

One rank's data decided whether all ranks communicate. It takes a rare batch, so it hangs days into the training, and
never in a test on clean data.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def count_over_ranks(tokens: torch.Tensor) -> int:
    """How many tokens the batches of all ranks hold together. A collective: all ranks must call it, in every step."""
    counts = [torch.empty_like(tokens) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, tokens)
    return int(torch.stack(counts).sum())


def next_batch(step: int, args: argparse.Namespace, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and a mask that is 0 for padding. The batch of rank 1 at step `at_step` is all padding."""
    mask = (torch.rand(16, device=device) < 0.9).float()
    if step == args.at_step and dist.get_rank() == 1:
        mask.zero_()
    return torch.randn(16, 32, device=device), mask


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps."""
    torch.manual_seed(dist.get_rank())  # every rank draws other data; DDP gives them all the weights of rank 0
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, args.steps + 1):
        inputs, mask = next_batch(step, args, device)
        tokens = count_over_ranks(mask.sum())
        if mask.sum() == 0 and not args.fixed:
            continue  # planted: this rank jumps over the all-reduce in backward, which all the others make
        # Without the `continue`, an empty batch adds gradients of 0: this rank takes part and changes nothing.
        error = (model(inputs).squeeze(1) - inputs.sum(dim=1)) ** 2
        loss = (error * mask).sum() / max(tokens, 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--at-step", type=int, default=400, help="the step at which rank 1 gets a batch of nothing but padding"
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
