"""Functions in which a thread waits: for other ranks, the GPU, requests, a person.

In: nothing. Out: rules, the first that matches a frame counts.

Names as in torch 2.13, DeepSpeed 0.19, Megatron-core 0.16, Accelerate 1.15, Transformers 5.24, Lightning 2.6, vLLM and
SGLang of 2025. A C call that blocks (sleep, lock, device sync, socket) has no Python frame: its caller is on top.
"""

from ncclprobe.analyze.signature import STDLIB, Phase, native, rule

_C10D = r"torch/distributed/distributed_c10d\.py"
_LIGHTNING = r"(?:lightning/(?:pytorch|fabric)|pytorch_lightning|lightning_fabric)"
_OPS = r"all_?reduce|broadcast|all_?gather\w*|reduce_?scatter\w*|all_?to_?all\w*|reduce|gather|scatter|barrier"

_TORCH = (
    rule(
        Phase.INIT,
        _C10D,
        r"init_process_group|_new_process_group_helper|_new_group_with_tag|new_group|new_subgroups\w*|split_group"
        r"|_store_based_barrier",
    ),
    rule(Phase.EXIT, _C10D, r"destroy_process_group|_abort_process_group|_shutdown_backend"),
    rule(Phase.P2P, _C10D, r"send|recv|isend|irecv|batch_isend_irecv|(?:send|recv)_object\w*"),
    rule(Phase.COLLECTIVE, _C10D, rf"{_OPS}|\w*barrier|\w*_object\w*|_coalescing_manager|wait"),
    rule(Phase.INIT, r"torch/distributed/(?:rendezvous|device_mesh|elastic/.*)\.py"),
    rule(
        Phase.COLLECTIVE,
        r"torch/distributed/(?:_functional_collectives|tensor/_(?:redistribute|collective_utils))\.py",
        rf"{_OPS}|wait_tensor|_maybe_wrap_tensor|redistribute\w*|mesh_\w+|trigger_wait|wait|\w+_tensor\w*",
    ),
    rule(
        Phase.COLLECTIVE,
        r"torch/nn/parallel/distributed\.py",
        r"_pre_forward|_sync_\w+|_check_and_sync\w*|_ddp_init_helper|_match_\w+",
    ),
    rule(Phase.COLLECTIVE, r"torch/distributed/utils\.py", r"_sync_\w+|_verify_param_shape_across_processes"),
    rule(
        Phase.COLLECTIVE,
        r"torch/distributed/(?:fsdp|_composable)/.*\.py",
        r"_?(?:root_)?pre_(?:forward|backward)\w*|_?unshard\w*|_?(?:root_)?post_backward\w*|_reduce_(?:grad|shard)\w*"
        r"|_all_gather_flat_param|_prefetch_\w+|_wait_\w+|wait_for_unshard|finalize_backward|foreach_\w+",
    ),
    rule(Phase.P2P, r"torch/distributed/pipelining/\w+\.py", r"_wait_batch_p2p|_batch_p2p|_sorted_batch_p2p"),
    rule(Phase.BACKWARD, r"torch/(?:autograd/(?:graph|__init__)|_tensor)\.py", r"_engine_run_backward|backward|grad"),
    rule(Phase.SYNC, r"torch/cuda/(?:__init__|streams)\.py", r"synchronize|wait\w*|query|_lazy_init"),
    rule(Phase.SYNC, r"torch/(?:nn/utils/clip_grad|amp/grad_scaler|cuda/amp/grad_scaler)\.py"),
    rule(Phase.SYNC, r"torch/_tensor(?:_str)?\.py", r"_str\w*|_tensor_str|__\w+__|_reduce_ex_internal"),
    rule(Phase.SYNC, r"torch/functional\.py", r"\w*unique\w*"),
)
_TRAINING = (
    rule(Phase.INIT, r"deepspeed/comm/\w+\.py", r"init_\w+|new_group|mpi_discovery"),
    rule(Phase.COLLECTIVE, r"deepspeed/comm/(?:comm|torch|ccl)\.py"),
    rule(Phase.COLLECTIVE, r"deepspeed/(?:runtime/comm|moe)/\w+\.py", rf"{_OPS}|\w*coalesced|_AllToAll"),
    rule(
        Phase.COLLECTIVE,
        r"deepspeed/runtime/engine\.py",
        r"allreduce_\w+|buffered_allreduce_fallback|sparse_allreduce\w*|_reduce_\w+|all_gather_scalar",
    ),
    rule(
        Phase.COLLECTIVE,
        r"deepspeed/runtime/(?:zero/\w+|fp16/\w+|utils|bf16_optimizer)\.py",
        r"_*(?:avg_)?(?:all)?_?(?:reduce|gather|scatter)\w*|average_tensor|overlapping_partition\w*|fetch_sub_module|wait"
        r"|independent_gradient\w*|has_overflow\w*|check_overflow|get_global_norm\w*",
    ),
    rule(Phase.P2P, r"deepspeed/runtime/pipe/\w+\.py", r"_exec_(?:recv|send)\w*|_?recv\w*|_?send\w*|wait"),
    rule(
        Phase.P2P,
        r"megatron/core/pipeline_parallel/\w+\.py",
        r"_communicate\w*|_p2p_ops|_batched_p2p_ops|(?:recv|send)(?:_\w+)?",
    ),
    rule(
        Phase.COLLECTIVE,
        r"megatron/core/distributed/.*\.py",
        r"(?:start|finish|force|_?dispatch)\w*_sync\w*|finalize_model_grads|_allreduce\w*",
    ),
    rule(
        Phase.COLLECTIVE,
        r"megatron/core/tensor_parallel/\w+\.py",
        r"_?(?:reduce|gather|all_to_all)(?:_\w+)?|scatter_\w+|broadcast_data|_build_key\w*",
    ),
    rule(
        Phase.COLLECTIVE,
        r"megatron/core/optimizer/\w+\.py",
        r"\w*grad_norm\w*|clip_grad\w*|count_zeros\w*|\w*all_?(?:reduce|gather)\w*|prepare_grads|\w*found_inf\w*",
    ),
    rule(
        Phase.COLLECTIVE,
        r"megatron/core/transformer/moe/\w+\.py",
        r"_maybe_dtoh\w*|token_(?:un)?permut\w*|dispatch\w*|combine\w*|all_to_all\w*",
    ),
    rule(
        Phase.COLLECTIVE,
        r"megatron/(?:training|core)/(?:utils|timers)\.py",
        r"average_losses\w*|calc_params_l2_norm|reduce_max_stat\w*|logical_and_across\w*|_get_global_min_max\w*|barrier",
    ),
    rule(Phase.COLLECTIVE, r"transformer_engine/pytorch/.*\.py", rf"(?:{_OPS})_along\w*|\w*a2a\w*|\w*p2p_comm\w*"),
    rule(
        Phase.COLLECTIVE,
        r"accelerate/(?:accelerator|state|utils/operations)\.py",
        rf"{_OPS}|wait_for_everyone|_gather\w*|gather_\w+|_?broadcast_\w+|pad_across\w*|(?:local_)?main_process_first"
        r"|_goes_first|check_trigger|_gpu_\w+",
    ),
    rule(Phase.SYNC, r"accelerate/accelerator\.py", r"clip_grad_\w+|unscale_gradients"),
    rule(Phase.COLLECTIVE, r"transformers/trainer\w*\.py", r"_?nested_\w*gather\w*|distributed_\w+|main_process_first"),
    rule(
        Phase.COLLECTIVE,
        rf"{_LIGHTNING}/.*(?:strategies/.*|utilities/distributed|overrides/.*)\.py",
        rf"{_OPS}|reduce_\w+|_?sync_ddp\w*|_?gather_all\w*|_simple_gather\w*",
    ),
    rule(Phase.COLLECTIVE, r"torchmetrics/.*\.py", r"gather_all_tensors|_simple_gather\w*|_sync_dist|sync"),
    rule(Phase.COLLECTIVE, r"mmengine/dist/\w+\.py", rf"{_OPS}|collect_results\w*|sync_random_seed|\w*object\w*"),
    rule(Phase.COLLECTIVE, r"composer/utils/dist\.py|colossalai/.*(?:comm|cluster|tensor)/.*\.py", _OPS),
    rule(
        Phase.COLLECTIVE,
        r"ray/train/(?:_internal/session|v2/.*|collective/\w+|context)\.py",
        r"report|barrier|broadcast_from_rank_zero",
    ),
    rule(Phase.COLLECTIVE, r"ray/util/collective/.*\.py", _OPS),
)
_SERVING = (
    rule(Phase.SERVE, r"vllm/distributed/device_communicators/shm_broadcast\.py", r"acquire_read|dequeue|wait"),
    rule(Phase.P2P, r"(?:vllm|sglang/srt)/distributed/.*\.py", r"i?(?:send|recv)(?:_\w+)?|acquire_write|enqueue"),
    rule(
        Phase.COLLECTIVE,
        r"(?:vllm|sglang/srt)/distributed/.*\.py",
        rf"{_OPS}|broadcast_\w+|_?all_(?:reduce|gather)_\w+|_?fused_\w*reduce\w*|dispatch|combine",
    ),
    rule(Phase.SERVE, r"vllm/v1/(?:engine|executor)/\w+\.py", r"get_response|_?process_input_\w+|get_output\w*"),
    rule(Phase.P2P, r"sglang/srt/managers/scheduler_pp_mixin\.py", r"_pp_(?:recv|send)\w*|_pp_commit\w*"),
    rule(Phase.COLLECTIVE, r"sglang/srt/(?:utils|managers)(?:/\w+)?\.py", r"broadcast_pyobj|prepare_mlp_sync\w*"),
    rule(Phase.SERVE, r"sglang/srt/managers/\w+\.py", r"recv_requests|recv_from_\w+|\w*_on_idle|maybe_sleep\w*"),
)
_PEOPLE = (
    rule(
        Phase.DEBUGGER,
        rf"{STDLIB}(?:pdb|bdb|cmd|code)\.py",
        r"_?cmdloop|interaction|interact|raw_input|user_\w+|trace_dispatch|dispatch_\w+|set_trace|onecmd",
    ),
    rule(
        Phase.DEBUGGER,
        r"(?:IPython|ipdb|debugpy|pydevd|_pydevd_bundle|remote_pdb|rpdb|web_pdb)/.*\.py",
        r"\w*(?:interact|cmdloop|suspend|wait_for_client|mainloop|set_trace|do_wait)\w*",
    ),
    rule(
        Phase.EXIT,
        rf"{STDLIB}(?:threading|multiprocessing/util|concurrent/futures/(?:thread|process))\.py",
        r"_shutdown|_exit_function|_python_exit|_run_finalizers",
    ),
)
WAITS = (*_TORCH, *_TRAINING, *_SERVING, *_PEOPLE)
"""Python functions in which a thread waits."""

NATIVE_WAITS = (
    native(
        Phase.INIT,
        r"ncclCommInit\w*|ncclCommSplit|bootstrap[A-Z]\w+|initTransportsRank|c10d::.*Store::\w+"
        r"|c10d::ProcessGroupNCCL::(?:initNCCLComm|getNCCLComm)",
    ),
    native(Phase.EXIT, r"ncclComm(?:Abort|Destroy|Finalize)|c10d::ProcessGroupNCCL::(?:abort\w*|shutdown)"),
    native(Phase.P2P, r"p?nccl(?:Send|Recv)|c10d::ProcessGroup\w*::(?:send|recv\w*)|c10d::(?:Send|Recv)\w*Work::\w+"),
    native(
        Phase.COLLECTIVE,
        r"p?nccl(?:AllReduce|Broadcast|Bcast|Reduce|AllGather|ReduceScatter|AllToAll|GroupEnd\w*|LaunchKernel\w*)"
        r"|gloo::.*|P?MPI_\w+|ucc_\w+|c10d::ops::.*|c10d::Reducer::\w+"
        r"|c10d::(?:\w*Work|ProcessGroup\w*(?:::\w+)?)::(?:wait\w*|synchronize\w*|_?all\w+|_?reduce\w*|broadcast"
        r"|gather|scatter|barrier|monitoredBarrier|collective\w*)",
    ),
    native(
        Phase.SYNC,
        r"cu(?:da)?(?:Stream|Device|Event|Ctx)Synchronize\w*|cu(?:da)?Mem(?:cpy|set|Free|Unmap)\w*"
        r"|cu(?:da)?LaunchKernel\w*|cu(?:da)?GraphLaunch\w*|hip(?:Stream|Device|Event)Synchronize\w*"
        r"|hip(?:Memcpy|LaunchKernel|Free)\w*|Tensor\.(?:cpu|item|tolist|numpy|to|nonzero)"
        r"|at::.*(?:_local_scalar_dense\w*|item|nonzero\w*)|c10::cuda::.*synchronize",
    ),
    native(Phase.BACKWARD, r"torch::autograd::(?:python::Python)?Engine::execute\w*"),
)
"""Native functions in which a thread waits."""

LEAVES = (
    rule(Phase.COLLECTIVE, r"torch/distributed/c10d_logger\.py", r"wrapper"),
    # The first .item() after asynchronous gradients is in here.
    rule(Phase.SYNC, r"(?:torch/optim|apex/optimizers|transformer_engine/pytorch/optimizers)/.*\.py"),
    rule(Phase.SYNC, r"deepspeed/(?:runtime/engine|ops/adam/\w+)\.py", r"backward|_?\w*step\w*"),
    rule(
        Phase.SYNC,
        r"(?:vllm/v1/worker/\w+|sglang/srt/managers/scheduler\w*)\.py",
        r"execute_model|sample_tokens|_bookkeeping_sync|_to_list|get_output|process_batch_result\w*|run_batch",
    ),
    rule(Phase.SYNC, r"triton/(?:backends/\w+/driver|runtime/jit)\.py", r"__call__|run"),  # its queue may be full
    rule(Phase.SERVE, r"vllm/v1/.*\.py|sglang/srt/managers/\w+\.py", r"\w*busy_loop|event_loop_\w+|run_engine_core"),
)
"""Python functions that wait in C code when nothing was called from them."""
