"""Call stacks of a made-up training script, as the flight recorder keeps them: innermost frame first.

In: the name of a call site. Out: its frames. Gradients that C++ reduces during backward have none, as in real dumps.
"""

from ncclprobe.model.frames import Frame, Stack

SCRIPT = "/workspace/train.py"
_TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
_MEGATRON = "/opt/venv/lib/python3.11/site-packages/megatron/core"
_C10D = f"{_TORCH}/distributed/distributed_c10d.py"

_MAIN = (Frame("main", SCRIPT, 412), Frame("<module>", SCRIPT, 431))
_STEP = (Frame("train_step", SCRIPT, 203), *_MAIN)
_LOGGED = Frame("wrapper", f"{_TORCH}/distributed/c10d_logger.py", 83)
_AUTOGRAD = Frame("backward", f"{_TORCH}/autograd/function.py", 311)


def _c10d(op: str, line: int, *below: Frame) -> Stack:
    return (Frame(op, _C10D, line), _LOGGED, *below)


def _user(op: str, c10d_line: int, function: str, line: int, caller_line: int) -> Stack:
    """A collective that the script calls itself, from a function that `train_step` calls."""
    return _c10d(op, c10d_line, Frame(function, SCRIPT, line), Frame("train_step", SCRIPT, caller_line), *_MAIN)


def _layer(function: str, c10d_op: str, c10d_line: int, mapping_line: int, layer_line: int) -> Stack:
    """A tensor-parallel call in the forward pass of a Megatron layer."""
    mapping = Frame(function, f"{_MEGATRON}/tensor_parallel/mappings.py", mapping_line)
    layer = Frame("forward", f"{_MEGATRON}/tensor_parallel/layers.py", layer_line)
    return _c10d(c10d_op, c10d_line, mapping, layer, Frame("forward_step", SCRIPT, 154), *_STEP)


def _layer_backward(function: str, c10d_op: str, c10d_line: int, mapping_line: int) -> Stack:
    """The same in the backward pass, on autograd's own thread: no frame of the script."""
    return _c10d(
        c10d_op, c10d_line, Frame(function, f"{_MEGATRON}/tensor_parallel/mappings.py", mapping_line), _AUTOGRAD
    )


def _pipeline(function: str, line: int) -> Stack:
    p2p = f"{_MEGATRON}/pipeline_parallel/p2p_communication.py"
    return (Frame(function, p2p, line), Frame("_communicate", p2p, 389), *_STEP)


def _experts(op: str, line: int) -> Stack:
    moe = f"{_MEGATRON}/transformer/moe/token_dispatcher.py"
    return _c10d(op, line, Frame("token_dispatch", moe, 521), Frame("forward_step", SCRIPT, 154), *_STEP)


_FSDP = f"{_TORCH}/distributed/fsdp/_fully_shard"
_FSDP_FORWARD = Frame("_pre_forward", f"{_FSDP}/_fsdp_state.py", 254)

SITES: dict[str, Stack] = {
    "ddp.bucket": (),
    "ddp.buffers": (
        Frame("_sync_buffers", f"{_TORCH}/nn/parallel/distributed.py", 2117),
        Frame("_pre_forward", f"{_TORCH}/nn/parallel/distributed.py", 1582),
        Frame("forward_step", SCRIPT, 154),
        *_STEP,
    ),
    "fsdp.unshard": _c10d(
        "all_gather_into_tensor",
        3998,
        Frame("foreach_all_gather", f"{_FSDP}/_fsdp_collectives.py", 189),
        _FSDP_FORWARD,
        Frame("forward_step", SCRIPT, 154),
        *_STEP,
    ),
    "fsdp.unshard_backward": _c10d(
        "all_gather_into_tensor", 3998, Frame("foreach_all_gather", f"{_FSDP}/_fsdp_collectives.py", 189), _AUTOGRAD
    ),
    "fsdp.reduce": _c10d(
        "reduce_scatter_tensor", 4342, Frame("foreach_reduce", f"{_FSDP}/_fsdp_collectives.py", 431), _AUTOGRAD
    ),
    "fsdp.replicate": _c10d(
        "all_reduce", 2983, Frame("foreach_reduce", f"{_FSDP}/_fsdp_collectives.py", 468), _AUTOGRAD
    ),
    "loss": _user("all_reduce", 2983, "mean_loss", 97, 211),
    "loss.reduce": _user("reduce", 3089, "mean_loss", 99, 211),
    "grad_norm": _user("all_reduce", 2983, "clip_gradients", 118, 207),
    "metrics": _user("all_gather_into_tensor", 3998, "log_metrics", 131, 219),
    "metrics.gather": _user("gather", 4055, "log_metrics", 134, 219),
    "metrics.rank": _user("all_reduce", 2983, "log_throughput", 143, 222),
    "metrics.main": _user("all_reduce", 2983, "log_on_main", 146, 224),
    "checkpoint": _user("barrier", 4919, "save_checkpoint", 177, 226),
    "debug": _user("all_reduce", 2983, "check_replicas", 149, 209),
    "tp.data": _c10d(
        "broadcast",
        2883,
        Frame("broadcast_data", f"{_MEGATRON}/tensor_parallel/data.py", 104),
        Frame("get_batch", SCRIPT, 71),
        Frame("forward_step", SCRIPT, 152),
        *_STEP,
    ),
    "tp.qkv": _layer("_gather_along_first_dim", "all_gather_into_tensor", 3998, 128, 871),
    "tp.proj": _layer("_reduce_scatter_along_first_dim", "reduce_scatter_tensor", 4342, 153, 1143),
    "tp.fc1": _layer("_gather_along_first_dim", "all_gather_into_tensor", 3998, 128, 902),
    "tp.fc2": _layer("_reduce_scatter_along_first_dim", "reduce_scatter_tensor", 4342, 153, 1171),
    "tp.loss": _layer("_reduce", "all_reduce", 2983, 41, 1203),
    "tp.gather_backward": _layer_backward("_gather_along_first_dim", "all_gather_into_tensor", 3998, 128),
    "tp.scatter_backward": _layer_backward("_reduce_scatter_along_first_dim", "reduce_scatter_tensor", 4342, 153),
    "tp.layernorm": _c10d(
        "all_reduce",
        2983,
        Frame("_allreduce_layernorm_grads", f"{_MEGATRON}/distributed/finalize_model_grads.py", 211),
        *_STEP,
    ),
    "dp.grads": _c10d(
        "reduce_scatter_tensor",
        4342,
        Frame("start_grad_sync", f"{_MEGATRON}/distributed/param_and_grad_buffer.py", 336),
        *_STEP,
    ),
    "dp.params": _c10d(
        "all_gather_into_tensor",
        3998,
        Frame("start_param_sync", f"{_MEGATRON}/distributed/param_and_grad_buffer.py", 211),
        *_STEP,
    ),
    "emb.grads": _c10d(
        "all_reduce",
        2983,
        Frame("_allreduce_embedding_grads", f"{_MEGATRON}/distributed/finalize_model_grads.py", 160),
        *_STEP,
    ),
    "moe.counts": _experts("all_gather_into_tensor", 3998),
    "moe.router": _experts("all_reduce", 2983),
    "moe.dispatch": _experts("all_to_all_single", 4586),
    "moe.combine": _experts("all_to_all_single", 4586),
    "moe.backward": _layer_backward("forward", "all_to_all_single", 4586, 422),
    "pp.p2p": _pipeline("_p2p_ops", 178),
    "pp.batched": _pipeline("_batched_p2p_ops", 132),
}
