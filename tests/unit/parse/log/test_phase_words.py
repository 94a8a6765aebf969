"""What lines of programs say that they do, in many programs' words."""

import pytest

from ncclprobe.analyze.phases import Phase
from ncclprobe.model.log import TRAINING
from ncclprobe.parse.log import phase_words
from ncclprobe.parse.log.activities import doing
from ncclprobe.parse.log.phase_words import (
    CHECKPOINT,
    COMPILE,
    DATA,
    DEBUGGER,
    EVALUATION,
    LOCK,
    LOGGING,
    PREPROCESSING,
    PROMPT,
)


@pytest.mark.parametrize(
    ("phase", "text"),
    [
        (PROMPT, "Do you wish to run the custom code? [y/N] "),
        (PROMPT, "Press Enter to continue..."),
        (LOGGING, "wandb: Enter your choice: "),
        (CHECKPOINT, "Saving model weights to /x/epoch3.pt"),
        (CHECKPOINT, "=> saving checkpoint 'ckpt_12.pth.tar'"),
        (CHECKPOINT, "Saving optimizer state (this can take a while)"),
        (CHECKPOINT, "Writing HF checkpoint to /out"),
        (CHECKPOINT, "Merging LoRA weights and saving the model to out/"),
        (CHECKPOINT, "Gathering full state dict on rank 0"),
        (CHECKPOINT, "Uploading checkpoint to s3://bucket/run"),
        (CHECKPOINT, "model.safetensors:  45%|████▌     | 2.1G/4.9G [00:10<00:12, 200MB/s]"),
        (CHECKPOINT, "Saving epoch 3 snapshot to snapshot.pt"),
        (CHECKPOINT, "Converting zero checkpoint to fp32 state dict"),
        (CHECKPOINT, "loading pretrained weights from /m/llama"),
        (CHECKPOINT, "Resuming from checkpoint step 400"),
        (CHECKPOINT, "saving checkpoint at iteration    5000 to /ckpt in torch_dist format"),
        (CHECKPOINT, "Checkpoint global_step500 is about to be saved!"),
        (CHECKPOINT, "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:00<00:02,  1.2it/s]"),
        (EVALUATION, "Evaluating on validation set [12/400]"),
        (EVALUATION, "eval:  34%|███▍      | 34/100 [00:10<00:20]"),
        (EVALUATION, "Validation DataLoader 0:  45%|████▌     | 45/100 [00:10<00:12,  4.1it/s]"),
        (EVALUATION, "Test: [  10/  98]  eta: 0:01:10"),
        (EVALUATION, "Computing FID over 50000 samples"),
        (EVALUATION, "Calculating perplexity on wikitext"),
        (EVALUATION, "Generating:  12%|█▏        | 12/100 [00:10<00:20]"),
        (EVALUATION, "Sampling images for the preview grid"),
        (EVALUATION, "***** Running Evaluation *****"),
        (EVALUATION, "Running validation at step 500"),
        (EVALUATION, "computing mAP on 5000 images"),
        (EVALUATION, "Running generate_until requests:   3%|▎         | 3/100 [00:10<00:20]"),
        (EVALUATION, "Decoding dev set with beam 10"),
        (EVALUATION, "rollout generation started for 512 prompts"),
        (PREPROCESSING, "Building cache for dataset"),
        (PREPROCESSING, "Caching latents:   3%|▎         | 3/100 [00:10<00:20]"),
        (PREPROCESSING, "Tokenizing prompts"),
        (PREPROCESSING, "Computing dataset statistics"),
        (PREPROCESSING, "Extracting archive train.tar.gz"),
        (PREPROCESSING, "Indexing 1.2M files under /data"),
        (PREPROCESSING, "train: Scanning labels... 4512 images, 0 corrupt:  45%|████▌     | 4512/10000 [00:10<00:12]"),
        (PREPROCESSING, "loading annotations into memory..."),
        (PREPROCESSING, "Resolving data files:  45%|████▌     | 45/100 [00:10<00:12]"),
        (PREPROCESSING, "Filter (num_proc=8):  45%|████▌     | 45/100 [00:10<00:12]"),
        (PREPROCESSING, "> building shuffle index with split [0, 1200)"),
        (PREPROCESSING, "Downloading data:  45%|████▌     | 45M/100M [00:10<00:12]"),
        (PREPROCESSING, "Preparing dataset, this may take a while"),
        (PREPROCESSING, "Packing sequences into 4096 tokens"),
        (PREPROCESSING, "computing audio features for 120000 files"),
        (PREPROCESSING, "copying dataset to /local/scratch"),
        (LOGGING, "wandb: Waiting for W&B process to finish... (success)."),
        (LOGGING, "wandb: 12.3 MB of 99.0 MB uploaded (0.000 MB deduped)"),
        (LOGGING, "Retrying (Retry(total=3)) after connection broken by 'X(\"P(host='mlflow.int', port=443)\")'"),
        (LOGGING, "Uploading artifacts to MLflow"),
        (LOGGING, "ClearML Monitor: could not connect, retrying in 10 s"),
        (LOGGING, "COMET INFO: Uploading 120 metrics, params and output messages"),
        (LOGGING, "neptune: waiting for the remaining 31 operations to synchronize"),
        (COMPILE, "Compiling the model with torch.compile... (takes a ~minute)"),
        (COMPILE, "Warming up CUDA graphs"),
        (COMPILE, "Capturing CUDA graph shapes:  45%|████▌     | 15/35 [00:10<00:12]"),
        (COMPILE, "compiling and loading fused kernels ..."),
        (COMPILE, "Building extension module fused_adam..."),
        (COMPILE, "AUTOTUNE mm(8192x5120, 5120x27648)"),
        (COMPILE, "building TensorRT engine, this may take minutes"),
        (COMPILE, "Start compile of graph for dynamic shape"),
        (LOCK, "Waiting to acquire lock on /root/.cache/huggingface/x.lock"),
        (LOCK, "Attempting to acquire lock 140213 on /cache/x.lock"),
        (LOCK, "Waiting for file lock /tmp/build.lock held by pid 311"),
        (DATA, "Waiting for next batch from the prefetch queue"),
        (DATA, "dataloader: read of shard-0041.tar from s3 timed out, retrying (3/10)"),
        (DATA, "WARNING data queue empty for 600 s"),
        (DATA, "slow read: 812 s for /mnt/nfs/part-9"),
        (DATA, "waiting for worker 3 of the data loader"),
        (DEBUGGER, "(Pdb) "),
        (DEBUGGER, "ipdb> "),
        (DEBUGGER, "> /a/b.py(12)step()"),
        (DEBUGGER, "debugpy: waiting for client to attach on port 5678"),
        (TRAINING, "step 100 loss 2.1"),
        (TRAINING, "iteration      100/    5000 | consumed samples: 12"),
        (TRAINING, "Epoch: [3][ 120/1200]  Time 0.5 Loss 2.1"),
        (TRAINING, "{'loss': 1.21, 'learning_rate': 2e-05, 'epoch': 0.5}"),
        (TRAINING, "train_inner | epoch 001:    100 / 2000 loss=9.1"),
        (TRAINING, " 12%|█▏        | 12/100 [00:10<00:20,  1.2it/s]"),
        (TRAINING, "it 100: loss 2.1"),
        (TRAINING, "[12/100] loss=2.4 lr=1e-4"),
    ],
)  # fmt: skip
def test_a_line_says_what_the_program_does(phase: str, text: str) -> None:
    found = doing(text)
    assert found is not None
    assert found.phase == phase


def test_words_are_those_of_stacks() -> None:
    names = (
        "CHECKPOINT",
        "PREPROCESSING",
        "EVALUATION",
        "COMPILE",
        "LOGGING",
        "DATA",
        "INIT",
        "EXIT",
        "DEBUGGER",
        "LOCK",
    )
    assert {getattr(phase_words, name) for name in names} == {str(Phase[name]) for name in names}


@pytest.mark.parametrize(
    "text",
    [
        "Received Signals.SIGTERM death signal, shutting down workers",
        "INFO all good here",
        "No available shared memory broadcast block found in 60 second (e.g. compilation).",
    ],
)
def test_a_line_that_says_nothing_of_the_kind(text: str) -> None:
    assert doing(text) is None


@pytest.mark.parametrize(
    ("text", "is_done"),
    [
        ("checkpoint saved in 9 s", True),
        ("Configuration saved in out/checkpoint-500/config.json", False),  # the optimizer's states are still to come
        ("Saving model checkpoint to out/checkpoint-500", False),
    ],
)
def test_whether_the_work_is_over(text: str, is_done: bool) -> None:
    found = doing(text)
    assert found is not None
    assert (found.progress == (1, 1)) is is_done
