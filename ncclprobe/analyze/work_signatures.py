"""Functions that say what a thread is about, and ways of waiting that do not.

In: nothing. Out: rules, the first that matches a frame counts. Names as in `wait_signatures`, and datasets 5.2.
"""

from ncclprobe.analyze.signature import STDLIB, Phase, native, rule

_LIGHTNING = r"(?:lightning/(?:pytorch|fabric)|pytorch_lightning|lightning_fabric)"

_CHECKPOINTS = (
    rule(
        Phase.CHECKPOINT, r"torch/serialization\.py|(?:torch/distributed/checkpoint|safetensors|torchsnapshot)/.*\.py"
    ),
    rule(Phase.CHECKPOINT, r"megatron/(?:core/dist_checkpointing/.*|training/(?:checkpointing|async_utils))\.py"),
    rule(Phase.CHECKPOINT, r"(?:torchtitan/components/checkpoint\w*|nvidia_resiliency_ext/checkpointing/.*)\.py"),
    rule(Phase.CHECKPOINT, r"deepspeed/(?:runtime/checkpoint_engine|checkpoint|nebula)/.*\.py"),
    rule(Phase.CHECKPOINT, r"deepspeed/runtime/engine\.py", r"\w*(?:save|load)_\w*|_create_zero_checkpoint\w*"),
    rule(
        Phase.CHECKPOINT,
        r"transformers/(?:trainer\w*|modeling_utils)\.py|accelerate/(?:checkpointing|accelerator)\.py|peft/peft_model\.py",
        r"_?(?:save|load)(?:_\w+)?|_rotate_checkpoints|_?from_pretrained",
    ),
    rule(Phase.CHECKPOINT, rf"{_LIGHTNING}/.*(?:checkpoint\w*|plugins/io/\w+|utilities/cloud_io)\.py"),
    rule(Phase.CHECKPOINT, r"(?:vllm/model_executor/model_loader|sglang/srt/model_loader|orbax)/.*\.py"),
    rule(Phase.CHECKPOINT, r"(?:mmengine/(?:runner|hooks)|composer/(?:utils|checkpoint)|nemo)/.*checkpoint\w*\.py"),
)
_DATA = (
    rule(Phase.DATA, r"(?:torch/utils/data|torchdata|webdataset|streaming/base|nvidia/dali|ffcv|litdata)/.*\.py"),
    rule(Phase.DATA, r"(?:datasets/(?:iterable_dataset|formatting/.*)|petastorm/.*|ray/data/.*)\.py"),
    rule(Phase.DATA, r"datasets/arrow_dataset\.py", r"__getitems?__|_getitem|__iter__|_?iter"),
    rule(Phase.DATA, r"accelerate/data_loader\.py"),
    rule(Phase.DATA, r"transformers/trainer\.py", r"get_batch_samples"),
    rule(Phase.DATA, rf"{_LIGHTNING}/.*(?:loops/fetchers|utilities/combined_loader|utilities/data)\.py"),
    rule(Phase.DATA, r"(?:torchtitan/.*(?:dataloader|datasets/\w+)|mmengine/dataset/.*)\.py"),
    rule(
        Phase.PREPROCESSING,
        r"(?:megatron/(?:core/datasets|legacy/data)|nemo/.*/data)/.*\.py",
        r"_?build\w*|compile_helpers?|_cache\w*",
    ),
    rule(Phase.DATA, r"(?:megatron/core/datasets|megatron/legacy/data|megatron/training/datasets)/.*\.py"),
    rule(
        Phase.PREPROCESSING,
        r"datasets/(?:arrow_dataset|arrow_writer|builder|load|dataset_dict|fingerprint|download/.*|utils/py_utils)\.py",
    ),
    rule(Phase.PREPROCESSING, r"(?:huggingface_hub|modelscope/hub)/.*\.py"),
)
_TRACKERS = (
    rule(Phase.LOGGING, r"(?:wandb|tensorboardX?|mlflow|comet_ml|neptune|clearml|swanlab|aim|dvclive|trackio)/.*\.py"),
    rule(Phase.LOGGING, r"torch/utils/tensorboard/.*\.py|transformers/integrations/integration_utils\.py"),
    rule(Phase.LOGGING, rf"accelerate/tracking\.py|{_LIGHTNING}/loggers/.*\.py|ray/air/integrations/.*\.py"),
    rule(Phase.LOGGING, r"megatron/training/(?:wandb_utils|one_logger_utils)\.py|mmengine/visualization/\w+\.py"),
)
# Only what compiles: the same packages' frames are below every compiled model that runs.
_COMPILERS = (
    rule(Phase.COMPILE, r"torch/_dynamo/(?!eval_frame|external_utils|decorators|callback|utils)\w+\.py"),
    rule(
        Phase.COMPILE,
        r"torch/_inductor/(?!utils|output_code|cudagraph_\w+|config|runtime/).*\.py",
        r"(?!run$|__call__$)\w+",
    ),
    rule(Phase.COMPILE, r"torch/_inductor/runtime/.*\.py", r"\w*(?:autotun|bench|compil|tune)\w*|result|wait"),
    rule(Phase.COMPILE, r"torch/_functorch/.*\.py", r"\w*(?:compile|aot_dispatch|partition|trace)\w*"),
    rule(Phase.COMPILE, r"torch/(?:utils/cpp_extension|utils/file_baton|fx/experimental/\w+)\.py"),
    rule(Phase.COMPILE, r"triton/(?:compiler/.*|testing|runtime/(?:autotuner|build)|backends/\w+/compiler)\.py"),
    rule(Phase.COMPILE, r"triton/runtime/jit\.py", r"_do_compile|compile|warmup|preload|create_binder"),
    rule(
        Phase.COMPILE,
        r"(?:flashinfer/(?:jit/.*|autotuner)|deepspeed/ops/op_builder/.*|deep_gemm/jit/.*|tvm/.*"
        r"|tilelang/(?:jit|autotuner|engine)/.*|numba/core/.*|numba/cuda/(?:compiler|dispatcher)|cupy/cuda/compiler"
        r"|megatron/legacy/fused_kernels/__init__|vllm/compilation/(?:backends|compiler_interface|pass_manager))\.py",
    ),
)
_EVALUATIONS = (
    rule(Phase.EVALUATION, r"transformers/trainer\w*\.py", r"evaluat\w*|prediction_\w+|predict"),
    rule(
        Phase.EVALUATION,
        r"transformers/generation/\w+\.py",
        r"generate|_?sample|_\w*search|_assisted_decoding|_prefill",
    ),
    rule(Phase.EVALUATION, r"megatron/(?:training/training|inference/.*)\.py", r"evaluate\w*|generate\w*"),
    rule(Phase.EVALUATION, rf"{_LIGHTNING}/.*(?:evaluation_loop|prediction_loop)\.py|mmengine/evaluator/.*\.py"),
    rule(Phase.EVALUATION, r"(?:lm_eval|evaluate|pycocotools|torchmetrics|nltk|sacrebleu|rouge_score)/.*\.py"),
    rule(Phase.EVALUATION, r"(?:trl|verl|openrlhf)/.*\.py", r"_?generate\w*|rollout\w*|\w*_completions|\w*reward\w*"),
)
WORKS = (*_CHECKPOINTS, *_DATA, *_TRACKERS, *_COMPILERS, *_EVALUATIONS)
"""Python functions that say what the work is."""

GENERICS = (
    rule(
        Phase.LOCK,
        rf"{STDLIB}(?:threading|_?queue)\.py",
        r"wait|wait_for|acquire|get|put|join|__enter__|_wait_for_tstate_lock",
    ),
    rule(
        Phase.LOCK,
        rf"{STDLIB}multiprocessing/(?:synchronize|queues|connection|managers|pool|process)\.py",
        r"wait|acquire|get|put|join|__enter__|_?poll|_?recv\w*|_callmethod|map|starmap|apply",
    ),
    rule(
        Phase.LOCK,
        rf"{STDLIB}(?:concurrent/futures/\w+|logging/__init__)\.py",
        r"result|wait|acquire|__exit__|shutdown|as_completed",
    ),
    rule(Phase.LOCK, r"(?:filelock|portalocker|fasteners|lockfile)/.*\.py", r"_?acquire|__enter__|lock|wait"),
    rule(Phase.NETWORK, rf"{STDLIB}(?:socket|ssl|http/\w+|urllib/\w+|smtplib|ftplib|xmlrpc/\w+)\.py"),
    rule(Phase.NETWORK, r"(?:urllib3|requests|httpx|httpcore|aiohttp|websockets?|grpc|paramiko|redis|pymongo)/.*\.py"),
    rule(Phase.NETWORK, r"(?:openai|anthropic|psycopg2?|sqlalchemy)/.*\.py"),
    rule(Phase.NETWORK, r"ray/_private/(?:worker|client_mode_hook)\.py", r"get|wait|get_objects|wrapper"),
    rule(
        Phase.DATA,
        r"(?:fsspec|s3fs|gcsfs|adlfs|boto3|botocore|s3transfer|google/cloud/storage|oss2|petrel_client)/.*\.py",
    ),
    rule(Phase.DATA, r"datasets/utils/file_utils\.py"),
    rule(
        Phase.CHILD,
        rf"{STDLIB}(?:subprocess|multiprocessing/popen_\w+)\.py",
        r"_?wait|_?try_wait|_?communicate|poll|run|check_\w+|call",
    ),
    rule(
        Phase.STORAGE,
        rf"{STDLIB}(?:shutil|tarfile|zipfile|gzip|tempfile|pathlib|glob|os)\.py",
        r"_?copy\w*|_?rmtree\w*|move|extract\w*|read\w*|write\w*|scandir|walk|_?i?glob\w*|mkdir|makedirs|unlink|rename",
    ),
    rule(Phase.PREPROCESSING, r"transformers/(?:.*/)?tokenization\w*\.py|(?:tiktoken|sentencepiece)/.*\.py"),
    rule(Phase.COMPILE, r"<frozen importlib[\w.]*>|importlib/\w+\.py"),
)
"""Python functions that wait for anything, or do anything."""

NATIVE_GENERICS = (
    native(
        Phase.LOCK,
        r"_*(?:GI_+)?pthread_(?:mutex|rwlock|spin)_\w*lock\w*|_*lll_lock_wait\w*|take_gil|flock\w*|fcntl_setlk"
        r"|std::(?:recursive_|shared_|timed_)*mutex::lock\w*|PyThread_acquire_lock\w*|acquire_timed",
    ),
    native(
        Phase.STORAGE,
        r"nfs\w*|rpc_wait_bit_killable|folio_wait\w*|io_schedule\w*|wait_on_page\w*|blk_mq\w*|cl_sync_io\w*|osc_\w+"
        r"|ptlrpc\w*|request_wait_answer|fuse_\w+|jbd2_\w+|xfs_\w+|ext4_\w+|ceph_\w+|netfs_\w+|cifs_\w+|smb2_\w+",
    ),
    native(Phase.SYNC, r"os_acquire_\w+|rm_\w+|nv_\w+|uvm_\w+|nvidia_\w*ioctl\w*"),
    native(Phase.DEBUGGER, r"n_tty_read|tty_read|ptrace_stop"),
    native(Phase.CHILD, r"do_wait|kernel_wait4"),
)
"""Native functions, the kernel's among them, that wait for anything."""
