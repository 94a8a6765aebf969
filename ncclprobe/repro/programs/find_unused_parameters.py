"""A model with two parts that hangs when the batch of one rank leaves a part out.

    torchrun --standalone --nproc-per-node 3 find_unused_parameters.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 3 find_unused_parameters.py --fixed  # runs to its end

DDP all-reduces gradients in buckets, and a bucket is sent when the gradients of all its parameters are there. At step
400 the batch of rank 1 has texts only. The model then leaves its image part out, whose parameters get no gradient, and
so the bucket is never full: `loss.backward()` returns on rank 1 without the all-reduce that the others wait in. Rank 1
goes on to the next collective, here one that logs the loss:

              ...  step 400
    rank 0    ...  all-reduce (in backward)                              waits for the gradients of rank 1
    rank 1    ...  (backward sends nothing)    all-gather (of losses)    waits for the losses of the others
    rank 2    ...  all-reduce (in backward)                              waits for the gradients of rank 1

`find_unused_parameters=True` makes DDP look, after each forward pass, for parameters that will get no gradient, and
count them as zero. Without a collective between backward and the next forward, rank 1 would fail there instead, with
"Expected to have finished reduction in the prior iteration", and the others would wait for a rank that is gone.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    """Scores a text, together with an image if there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.text_part = nn.Linear(32, 1)
        self.image_part = nn.Linear(64, 1)

    def forward(self, texts: torch.Tensor, images: torch.Tensor | None) -> torch.Tensor:
        """Scores of shape (batch, 1)."""
        scores = self.text_part(texts)
        # The mistake is this `if`: data decides which parameters take part, and each rank has other data.
        return scores if images is None else scores + self.image_part(images)


def next_images(step: int, args: argparse.Namespace, device: torch.device) -> torch.Tensor | None:
    """The images of a batch; rank 1 has none at step `at_step`."""
    has_images = step != args.at_step or dist.get_rank() != 1
    return torch.randn(16, 64, device=device) if has_images else None


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps."""
    torch.manual_seed(dist.get_rank())  # every rank draws other data; DDP gives them all the weights of rank 0
    model = DistributedDataParallel(
        Model().to(device),
        device_ids=[device.index] if device.type == "cuda" else None,
        find_unused_parameters=args.fixed,  # the repair
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, args.steps + 1):
        texts = torch.randn(16, 32, device=device)
        loss = (model(texts, next_images(step, args, device)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        losses = [torch.empty_like(loss) for _ in range(dist.get_world_size())]
        dist.all_gather(losses, loss.detach())  # planted: one rank is here, without having sent its gradients
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f} mean loss over all ranks {torch.stack(losses).mean():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="the step at which the batch of rank 1 has no images")
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
