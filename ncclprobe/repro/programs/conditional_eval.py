"""A small model whose weights are sharded over the ranks (FSDP), and which only rank 0 evaluates.

    torchrun --standalone --nproc-per-node 3 conditional_eval.py          # hangs at step 400
    torchrun --standalone --nproc-per-node 3 conditional_eval.py --fixed  # runs to its end

With DDP, evaluating on rank 0 alone merely wastes the time of the others. With FSDP no rank has the whole model: each
forward pass collects the weights of every layer with an all-gather, and so **calling the model is a collective**, even
in an evaluation, and even under `torch.no_grad()`:

              ...  after step 400
    rank 0    ...  all-gather (evaluate)       ...  all-gather (evaluate)        waits for the others
    rank 1-2  ...  all-gather (next forward)   ...  reduce-scatter (backward)    wait for the gradients of rank 0

Note how it does not hang at once: the first all-gathers of rank 0's evaluation meet those of the others' next training
step, which look the same. Where the sequences really part, the others are already in backward.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

EVALUATION_BATCHES = 8


def build_model(device: torch.device) -> nn.Module:
    """Layers of equal size, the weights of each sharded over all ranks."""
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32)).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert isinstance(model, FSDPModule)
    return model


def evaluate(model: nn.Module, device: torch.device) -> float:
    """The mean loss on data that was held out. Each call of the model gathers its weights from all ranks."""
    total = 0.0
    with torch.no_grad():
        for _ in range(EVALUATION_BATCHES):
            inputs = torch.randn(16, 32, device=device)
            total += nn.functional.mse_loss(model(inputs), inputs).item()
    return total / EVALUATION_BATCHES


def report(step: int, model: nn.Module, device: torch.device) -> None:
    """Evaluate, the way it hangs."""
    if dist.get_rank() == 0:
        loss = evaluate(model, device)  # planted: calls the sharded model, which takes all ranks, on rank 0 alone
        print(f"step {step} evaluation loss {loss:.4f}")


def report_fixed(step: int, model: nn.Module, device: torch.device) -> None:
    """Evaluate, the way it works: every rank does, one of them prints."""
    loss = evaluate(model, device)
    if dist.get_rank() == 0:
        print(f"step {step} evaluation loss {loss:.4f}")


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Run `args.steps` steps; every `args.at_step` of them the model is evaluated."""
    torch.manual_seed(dist.get_rank())  # every rank draws other data, and its own shards of the weights
    model = build_model(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, args.steps + 1):
        inputs = torch.randn(16, 32, device=device)
        loss = nn.functional.mse_loss(model(inputs), inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.4f}")
        if step % args.at_step == 0:
            if args.fixed:
                report_fixed(step, model, device)
            else:
                report(step, model, device)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-step", type=int, default=400, help="evaluate every N steps")
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
