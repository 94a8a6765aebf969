"""The right phase for stacks of each framework, in full paths and in the short ones of py-spy's text."""

import time

import pytest

from ncclprobe.analyze.phases import Phase, Place, place_of
from ncclprobe.model.frames import KERNEL, Frame, Stack

SITE = "/opt/venv/lib/python3.11/site-packages/"
LIB = "/usr/lib/python3.11/"
C10D = "torch/distributed/distributed_c10d.py"
USER = "step train.py < <module> train.py"


def stack(text: str) -> Stack:
    """`function file < function file`, innermost first."""
    return tuple(Frame(*(part.split(" ", 1) if " " in part else (part, ""))) for part in text.split(" < "))


def absolute(text: str) -> str:
    """The same with the folders that py-spy's text leaves out."""
    parts = [part.split(" ", 1) for part in text.split(" < ")]
    return " < ".join(f"{name} {_folder(file)}{file}" for name, file in parts)


def _folder(file: str) -> str:
    if file.startswith(("train.py", "my_", "<")):
        return "" if file.startswith("<") else "/home/user/job/"
    in_library = ("threading", "queue", "socket", "selectors", "subprocess", "multi", "http/", "logging/", "concurrent",
                  "pdb", "bdb", "cmd", "shutil", "importlib", "ssl")  # fmt: skip
    return LIB if file.startswith(in_library) else SITE


WAITS_FOR_LOADER = (
    "select selectors.py < wait multiprocessing/connection.py < _poll multiprocessing/connection.py < "
    "get multiprocessing/queues.py < _try_get_data torch/utils/data/dataloader.py < "
    "__next__ torch/utils/data/dataloader.py"
)
WAITS_FOR_HTTP = (
    "readinto socket.py < _read_status http/client.py < getresponse http/client.py < "
    "urlopen urllib3/connectionpool.py < send requests/adapters.py"
)
NINJA = "_try_wait subprocess.py < communicate subprocess.py < run subprocess.py"
TABLE: list[tuple[Phase, str]] = [
    # torch
    (Phase.COLLECTIVE, f"all_reduce {C10D} < wrapper torch/distributed/c10d_logger.py"),
    (Phase.COLLECTIVE, f"monitored_barrier {C10D}"),
    (Phase.COLLECTIVE, f"broadcast {C10D} < broadcast_object_list {C10D}"),
    (Phase.COLLECTIVE, "_pre_forward torch/nn/parallel/distributed.py < forward my_model.py"),
    (Phase.COLLECTIVE, "wait_tensor torch/distributed/_functional_collectives.py"),
    (Phase.COLLECTIVE, "_sync_module_states torch/distributed/utils.py"),
    (Phase.COLLECTIVE, "synchronize torch/cuda/streams.py < _unshard torch/distributed/fsdp/_runtime_utils.py"),
    (
        Phase.COLLECTIVE,
        (
            "foreach_reduce torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py < "
            "post_backward x/fsdp/_fully_shard/a.py"
        ),
    ),
    (Phase.COLLECTIVE, f"all_gather {C10D} < save torch/distributed/checkpoint/state_dict_saver.py"),
    (Phase.P2P, f"recv {C10D} < wrapper torch/distributed/c10d_logger.py"),
    (Phase.P2P, "_wait_batch_p2p torch/distributed/pipelining/schedules.py"),
    (
        Phase.BACKWARD,
        (
            "_engine_run_backward torch/autograd/graph.py < backward torch/autograd/__init__.py < "
            "backward torch/_tensor.py"
        ),
    ),
    (Phase.SYNC, "synchronize torch/cuda/streams.py"),
    (Phase.SYNC, "clip_grad_norm_ torch/nn/utils/clip_grad.py"),
    (Phase.SYNC, "step torch/optim/adamw.py"),
    (Phase.SYNC, "_lazy_init torch/cuda/__init__.py"),
    (Phase.SYNC, "unique torch/functional.py"),
    (Phase.SYNC, "_tensor_str torch/_tensor_str.py < __repr__ torch/_tensor.py"),
    (Phase.INIT, f"_store_based_barrier {C10D} < init_process_group {C10D}"),
    (Phase.INIT, "next_rendezvous torch/distributed/elastic/rendezvous/dynamic_rendezvous.py"),
    (Phase.EXIT, f"destroy_process_group {C10D}"),
    (Phase.EXIT, "wait threading.py < _shutdown threading.py"),
    # DeepSpeed, Megatron
    (
        Phase.COLLECTIVE,
        "synchronize torch/cuda/streams.py < fetch_sub_module deepspeed/runtime/zero/partitioned_param_coordinator.py",
    ),
    (Phase.COLLECTIVE, "log_wrapper deepspeed/comm/comm.py < allreduce_bucket deepspeed/runtime/engine.py"),
    (Phase.COLLECTIVE, "__reduce_and_partition_ipg_grads deepspeed/runtime/zero/stage3.py"),
    (
        Phase.COLLECTIVE,
        (
            "synchronize torch/cuda/__init__.py < "
            "overlapping_partition_gradients_reduce_epilogue deepspeed/runtime/zero/stage_1_and_2.py"
        ),
    ),
    (Phase.SYNC, "step deepspeed/runtime/engine.py"),
    (Phase.CHECKPOINT, "_save_zero_checkpoint deepspeed/runtime/engine.py"),
    (Phase.P2P, "_exec_recv_activations deepspeed/runtime/pipe/engine.py"),
    (
        Phase.P2P,
        (
            "_communicate megatron/core/pipeline_parallel/p2p_communication.py < "
            "recv_forward megatron/core/pipeline_parallel/x.py"
        ),
    ),
    (Phase.COLLECTIVE, "start_grad_sync megatron/core/distributed/param_and_grad_buffer.py"),
    (Phase.COLLECTIVE, "_gather_along_first_dim megatron/core/tensor_parallel/mappings.py"),
    (Phase.COLLECTIVE, "get_grad_norm_fp32 megatron/core/optimizer/clip_grads.py"),
    (Phase.CHECKPOINT, "wait threading.py < save megatron/core/dist_checkpointing/serialization.py"),
    (
        Phase.DATA,
        "read megatron/core/datasets/indexed_dataset.py < __getitem__ megatron/core/datasets/t5_dataset.py",
    ),
    (Phase.PREPROCESSING, "_build_document_sample_shuffle_indices megatron/core/datasets/gpt_dataset.py"),
    # Trainers
    (Phase.COLLECTIVE, "wait_for_everyone accelerate/state.py"),
    (Phase.COLLECTIVE, "_nested_gather transformers/trainer.py"),
    (Phase.EVALUATION, "compute my_metric.py < evaluation_loop transformers/trainer.py"),
    (Phase.EVALUATION, "forward my_model.py < _sample transformers/generation/utils.py"),
    (Phase.CHECKPOINT, "_save_checkpoint transformers/trainer.py"),
    (Phase.COLLECTIVE, "barrier lightning/pytorch/strategies/ddp.py"),
    (Phase.COLLECTIVE, "reduce_boolean_decision pytorch_lightning/strategies/strategy.py"),
    (Phase.DATA, "__next__ lightning/pytorch/loops/fetchers.py"),
    (Phase.CHECKPOINT, "_save_checkpoint lightning/pytorch/callbacks/model_checkpoint.py"),
    (Phase.COLLECTIVE, "wait threading.py < report ray/train/_internal/session.py"),
    (Phase.NETWORK, "get ray/_private/worker.py"),
    # Inference
    (Phase.P2P, f"recv {C10D} < recv_object sglang/srt/distributed/parallel_state.py"),
    (
        Phase.COLLECTIVE,
        (
            f"broadcast {C10D} < broadcast_pyobj sglang/srt/utils/common.py < "
            "recv_requests sglang/srt/managers/scheduler.py"
        ),
    ),
    (Phase.SERVE, "recv_requests sglang/srt/managers/scheduler.py < event_loop_normal sglang/srt/managers/s.py"),
    (
        Phase.SERVE,
        (
            "acquire_read vllm/distributed/device_communicators/shm_broadcast.py < "
            "worker_busy_loop vllm/v1/executor/multiproc_executor.py"
        ),
    ),
    (Phase.SERVE, "get queue.py < _process_input_queue vllm/v1/engine/core.py"),
    (Phase.SYNC, "execute_model vllm/v1/worker/gpu_model_runner.py"),
    (Phase.SYNC, "synchronize torch/cuda/streams.py < event_loop_normal sglang/srt/managers/scheduler.py"),
    (Phase.COLLECTIVE, "all_reduce vllm/distributed/device_communicators/pynccl.py"),
    (Phase.CHECKPOINT, "load_weights vllm/model_executor/model_loader/default_loader.py"),
    # Data
    (Phase.DATA, WAITS_FOR_LOADER),
    (Phase.DATA, f"{WAITS_FOR_LOADER} < evaluate megatron/training/training.py"),
    (
        Phase.DATA,
        (
            "__getitem__ my_data.py < fetch torch/utils/data/_utils/fetch.py < "
            "_worker_loop torch/utils/data/_utils/worker.py"
        ),
    ),
    (Phase.DATA, "join multiprocessing/process.py < _shutdown_workers torch/utils/data/dataloader.py"),
    (Phase.DATA, "recv ssl.py < read_with_retries datasets/utils/file_utils.py"),
    (Phase.DATA, "wait threading.py < sync fsspec/asyn.py"),
    (Phase.PREPROCESSING, "tokenize my_text.py < map datasets/arrow_dataset.py"),
    (Phase.DATA, "__getitem__ datasets/arrow_dataset.py"),
    (Phase.PREPROCESSING, "acquire filelock/_api.py < download_and_prepare datasets/builder.py"),
    (Phase.PREPROCESSING, f"{WAITS_FOR_HTTP} < snapshot_download huggingface_hub/_snapshot_download.py"),
    # Checkpoints, trackers
    (Phase.CHECKPOINT, "__init__ torch/serialization.py < save torch/serialization.py"),
    (Phase.CHECKPOINT, "save_file safetensors/torch.py"),
    (Phase.CHECKPOINT, "load torch/serialization.py < restore my_train.py"),
    # A shard of the data is loaded by the same function.
    (Phase.DATA, "load torch/serialization.py < __iter__ my_data.py < fetch torch/utils/data/_utils/fetch.py"),
    (
        Phase.DATA,
        "read ssl.py < sync fsspec/asyn.py < load torch/serialization.py < __next__ torch/utils/data/dataloader.py",
    ),
    (Phase.PREPROCESSING, "load torch/serialization.py < embed my_text.py < map datasets/arrow_dataset.py"),
    (
        Phase.CHECKPOINT,
        (
            "recv multiprocessing/connection.py < "
            "_wait_for_response torch/distributed/checkpoint/_async_process_executor.py"
        ),
    ),
    (
        Phase.LOGGING,
        "wait threading.py < wait threading.py < wait_or wandb/sdk/mailbox/mailbox_handle.py < show my_hook.py",
    ),
    (Phase.LOGGING, "put queue.py < flush torch/utils/tensorboard/writer.py"),
    (
        Phase.LOGGING,
        f"{WAITS_FOR_HTTP} < log mlflow/tracking/client.py < on_log transformers/integrations/integration_utils.py",
    ),
    # Compilers
    (
        Phase.COMPILE,
        f"{NINJA} < run_ninja flashinfer/jit/cpp_ext.py < forward sglang/srt/model_executor/model_runner.py",
    ),
    (Phase.COMPILE, f"{NINJA} < _run_ninja_build torch/utils/cpp_extension.py"),
    (Phase.COMPILE, "wait torch/utils/file_baton.py < load torch/utils/cpp_extension.py"),
    (Phase.COMPILE, "result concurrent/futures/_base.py < _compile torch/_inductor/async_compile.py"),
    (Phase.COMPILE, "trace_rules torch/_dynamo/symbolic_convert.py < _compile torch/_dynamo/convert_frame.py"),
    (Phase.COMPILE, "compile triton/compiler/compiler.py < run triton/runtime/jit.py"),
    (Phase.COMPILE, "_find_and_load <frozen importlib._bootstrap> < <module> train.py"),
    (
        Phase.COMPILE,
        "_load <frozen importlib._bootstrap> < <module> torch/utils/data/__init__.py < <module> train.py",
    ),
    # Anything
    (Phase.LOCK, "wait threading.py < wait threading.py"),
    (Phase.LOCK, "_acquire filelock/_unix.py < acquire filelock/_api.py"),
    (Phase.LOCK, "acquire logging/__init__.py"),
    (Phase.NETWORK, WAITS_FOR_HTTP),
    (Phase.EVALUATION, f"{WAITS_FOR_HTTP} < generate trl/extras/vllm_client.py"),
    (Phase.CHILD, NINJA),
    (Phase.STORAGE, "copyfileobj shutil.py"),
    (Phase.CHECKPOINT, "rmtree shutil.py < _rotate_checkpoints transformers/trainer.py"),
    (Phase.DEBUGGER, "cmdloop cmd.py < interaction pdb.py < trace_dispatch bdb.py"),
]


@pytest.mark.parametrize("is_short", [True, False], ids=["short", "full"])
@pytest.mark.parametrize(("phase", "text"), TABLE)
def test_the_table(phase: Phase, text: str, is_short: bool) -> None:
    whole = f"{text} < {USER}"
    assert place_of(stack(whole if is_short else absolute(whole))).phase is phase


# --- what user code says, and what a C call hides ---


@pytest.mark.parametrize(
    ("phase", "text"),
    [
        (Phase.PYTHON, "compute train.py < <module> train.py"),
        (Phase.PYTHON, f"callback train.py < all_reduce {C10D} < step train.py"),
        (Phase.PYTHON, "hook train.py < _engine_run_backward torch/autograd/graph.py < step train.py"),
        (Phase.PYTHON, "reward train.py < _fn torch/_dynamo/eval_frame.py < step train.py"),
        (Phase.PYTHON, "__call__ torch/_inductor/output_code.py < call /tmp/torchinductor_u/a.py < step train.py"),
        (Phase.PYTHON, "get /home/user/src/queue.py < step train.py"),
        (Phase.PYTHON, "interact /home/user/src/code.py < step train.py"),
        (Phase.PYTHON, "load /home/user/aim/load.py < step train.py"),
        (Phase.EVALUATION, f"{WAITS_FOR_HTTP} < generate_rollouts train.py"),
        (Phase.CHECKPOINT, f"{NINJA} < save_checkpoint train.py"),
        (Phase.EVALUATION, "compute train.py < validate train.py"),
        (Phase.LOCK, "wait threading.py < save_checkpoint train.py"),
        (Phase.COLLECTIVE, "start_grad_sync /workspace/Megatron-LM/megatron/core/distributed/param_and_grad_buffer.py"),
        (Phase.UNKNOWN, ""),
    ],
)
def test_user_code(phase: Phase, text: str) -> None:
    assert place_of(stack(text) if text else ()).phase is phase


@pytest.mark.parametrize(
    ("phase", "text"),
    [
        (Phase.SYNC, f"cuStreamSynchronize libcuda.so.1 < cudaStreamSynchronize libcudart.so < {USER}"),
        (Phase.SYNC, f"cuMemcpyDtoHAsync_v2 libcuda.so.550.54.15 < at::native::_local_scalar_dense_cuda x.so < {USER}"),
        (Phase.SYNC, f"Tensor.cpu  < {USER}"),
        (Phase.COLLECTIVE, f"pthread_cond_wait libc.so.6 < c10d::Work::wait libtorch_cpu.so < {USER}"),
        (Phase.COLLECTIVE, "c10d::Work::wait libtorch_cpu.so < c10d::Reducer::rebuild_buckets libtorch_cpu.so"),
        (Phase.COLLECTIVE, "epoll_wait libc.so < gloo::transport::tcp::UnboundBuffer::waitRecv libtorch_cpu.so"),
        (
            Phase.COLLECTIVE,
            "ncclLocalOpAppend proxy.cc < ncclGroupEndInternal group.cc < ncclReduceScatter libnccl.so.2",
        ),
        (Phase.INIT, "poll libc.so < bootstrapAllGather bootstrap.cc < ncclCommInitRankFunc init.cc"),
        (Phase.INIT, "poll libc.so < c10d::TCPStore::get libtorch_cpu.so"),
        (Phase.LOCK, "__lll_lock_wait libc.so < pthread_mutex_lock libc.so < DeviceCachingAllocator::snapshot x.so"),
        (Phase.LOCK, f"futex libc.so < PyThread_acquire_lock_timed libpython3.11.so.1.0 < {USER}"),
        (Phase.UNKNOWN, "futex libc.so < PyThread_acquire_lock_timed libpython3.11.so.1.0 < main python3.11"),
        (Phase.UNKNOWN, "clock_nanosleep libc.so < time_sleep libpython3.11.so.1.0 < main python3.11"),
        (Phase.STORAGE, f"rpc_wait_bit_killable {KERNEL} < nfs_wait {KERNEL}"),
        (Phase.UNKNOWN, f"futex_do_wait {KERNEL} < futex_wait {KERNEL}"),
        (Phase.DEBUGGER, f"n_tty_read {KERNEL}"),
    ],
)
def test_native_frames(phase: Phase, text: str) -> None:
    assert place_of(stack(text)).phase is phase


def test_the_frame_is_the_one_that_gave_it_away() -> None:
    text = f"{NINJA} < run_ninja flashinfer/jit/cpp_ext.py"
    assert place_of(stack(text)) == Place(Phase.COMPILE, Frame("run_ninja", "flashinfer/jit/cpp_ext.py"))
    assert place_of(stack(f"socket.readinto {LIB}socket.py < f train.py")).phase is Phase.NETWORK


def test_ten_thousand_different_stacks_are_quick() -> None:
    stacks = [stack(f"{WAITS_FOR_LOADER} < step{n} train.py < {USER}") for n in range(10_000)]
    started = time.process_time()
    assert {place_of(one).phase for one in stacks} == {Phase.DATA}
    assert time.process_time() - started < 2
