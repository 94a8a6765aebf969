"""What programs say they are doing, and when a rank says that it is done."""

import pytest

from ncclprobe.analyze.phases import Phase
from ncclprobe.model.log import Activity, Left, LogEvent
from ncclprobe.parse.log import activities
from ncclprobe.parse.log.activities import doing
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.program import RECOGNIZER


def heard(*lines: str | LogLine) -> list[LogEvent]:
    recognizer = RECOGNIZER()
    events: list[LogEvent] = []
    for number, line in enumerate(lines, 1):
        events.extend(recognizer.feed(line if isinstance(line, LogLine) else LogLine(number=number, text=line)))
    return [*events, *recognizer.end()]


LINES = [
    (Phase.CHECKPOINT, "[INFO] [strategy.py:402] rank 0: gathered 402 state tensors, writing model to /hf (15 GB)"),
    (Phase.CHECKPOINT, "rank 0: wrote model-00003-of-00007.safetensors"),
    (Phase.CHECKPOINT, "INFO - Saving checkpoint at 1500 iterations"),
    (Phase.CHECKPOINT, "saving checkpoint at iteration    2000 to /ckpt in torch_dist format"),
    (Phase.CHECKPOINT, "Saving model checkpoint to output/checkpoint-500"),
    (Phase.CHECKPOINT, " loading checkpoint from /ckpt at iteration 2000"),
    (Phase.CHECKPOINT, "Loading checkpoint shards:  40%|████      | 2/5 [00:38<00:00,  7.61s/it]"),
    (Phase.CHECKPOINT, "Loading safetensors checkpoint shards:   0% Completed | 0/5 [00:00<?, ?it/s]"),
    (Phase.PREPROCESSING, "Tokenizing Prompts (num_proc=32):   0%|          | 0/283110 [00:00<2:02:52, 38.40 e/s]"),
    (Phase.PREPROCESSING, "Map (num_proc=8):  10%|█         | 100/1000 [00:01<00:10, 9.0 examples/s]"),
    (Phase.PREPROCESSING, "Generating train split: 21433 examples [00:31, 68310.12 examples/s]"),
    (Phase.PREPROCESSING, "Saving the dataset (0/4 shards):   0%|          | 0/21433 [00:00<?, ? examples/s]"),
    (Phase.PREPROCESSING, "> building train, validation, and test datasets ..."),
    (Phase.PREPROCESSING, "Downloading shards:  50%|█████     | 1/2 [00:38<00:38, 38.0s/it]"),
    (Phase.EVALUATION, "Evaluating iter 1/10"),
    (Phase.EVALUATION, "***** Running Evaluation *****"),
    (Phase.EVALUATION, "Validation DataLoader 0:  12%|█▏        | 12/100 [00:03<00:24, 3.6it/s]"),
    (Phase.EVALUATION, "[>                                                 ] 3/500, elapsed: 2s, ETA: 60s"),
    (Phase.COMPILE, "Capture cuda graph begin. This can take up to several minutes. avail mem=7.91 GB"),
    (Phase.COMPILE, "Building extension module fused_adam..."),
    (Phase.COMPILE, "ninja: no work to do."),
    (Phase.LOGGING, "wandb: Network error (ReadTimeout), entering retry loop."),
    (Phase.DATA, "waiting for the next batch since 60 s"),
    (Phase.EXIT, "should_stop=True at global_step 9271, leaving fit loop"),
    (Phase.INIT, "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4"),
    ("training", "step 400 loss 2.1 412 ms"),
    ("training", "epoch 0 | batch 24 | loss 6.520"),
    ("training", " iteration     3120/  500000 | consumed samples:      3194880 | elapsed time"),
    ("training", "mmengine - INFO - Iter(train) [   50/80000]  lr: 5.9e-05  eta: 8:58:12"),
    ("training", "{'loss': 1.2, 'grad_norm': 0.5, 'epoch': 0.01}"),
    ("training", "Epoch 11:  37%|███▋      | 301/812 [09:31<16:10,  1.90s/it, v_num=7]"),
    ("training", "Decode batch. #running-req: 8, #token: 8100, token usage: 0.01, cuda graph: True"),
]  # fmt: skip


@pytest.mark.parametrize(("phase", "text"), LINES)
def test_phases(phase: str, text: str) -> None:
    found = doing(text)
    assert found is not None
    assert found.phase == str(phase)
    assert not found.is_done


SILENT = [
    "speech.utils.checkpoints - Would load a checkpoint here, but none found yet.",
    "[INFO:swift] The SftArguments will be saved in: output/args.json",
    "INFO loaded shard 1/8",
    "data shard 8/16 opened, 61233 utterances",
    "  Gradient Accumulation steps = 4",
    "  Total optimization steps = 6,026",
    "loading file tokenizer.model",
    "node01:8210:8629 [0] NCCL INFO Connected all rings",
    "slurmstepd: info: step 6120.0: no output for 900 s",
    'RuntimeError: iteration 3 failed in "saving checkpoint"',
    "Waiting in store based barrier to initialize process group for rank: 0",
    "No available shared memory broadcast block found in 60 seconds. doing some time-consuming work (e.g. compilation)",
    "step",
    "",
]


@pytest.mark.parametrize("text", SILENT)
def test_lines_that_say_nothing(text: str) -> None:
    assert doing(text) is None


@pytest.mark.parametrize(
    ("text", "progress"),
    [
        ("Epoch 3 step 4000/12000 loss=1.4", (4000, 12000)),
        ("eval batch 231/400 done", (231, 400)),
        ("checkpoint: consolidated 13/24", (13, 24)),
        ("Running tokenizer on dataset:  11%|█         | 239000/2143311 [30:14<4:00:59]", (239000, 2143311)),
        ("Downloading: 10%|█   | 1.5M/15.0M [00:01<00:09, 1.5MB/s]", (1_500_000, 15_000_000)),
        ("checkpoint: consolidation done", (1, 1)),
        ("successfully saved checkpoint at /ckpt", (1, 1)),
        ("Capture cuda graph end. Time elapsed: 21.62 s.", (1, 1)),
        ("02/03/2026 10:00:21 - INFO - Loading dataset corpus.jsonl", None),
        ("step 400 loss 2.1", None),
    ],
)
def test_progress(text: str, progress: tuple[int, int] | None) -> None:
    found = doing(text)
    assert found is not None
    assert found.progress == progress


def test_phases_are_those_of_the_analysis() -> None:
    words = {value for name, value in vars(activities).items() if name[0].isupper() and isinstance(value, str)}
    assert words - {"training"} <= {str(phase) for phase in Phase}


def test_of_a_run_the_first_and_last_line_are_told() -> None:
    events = heard(
        *(f"step {n} loss 1.0" for n in range(500)), "Saving checkpoint", *(f"step {n}" for n in range(500, 502))
    )
    ends = ["step 0 loss 1.0", "step 499 loss 1.0", "Saving checkpoint", "step 500", "step 501"]
    assert [event.quote for event in events] == ends


def bar(done: int) -> str:
    return f"Running tokenizer on dataset:  10%|█         | {done}/1000 [28:00<4:03:14, 131.70 examples/s]"


def test_bars_of_two_ranks_are_told_apart() -> None:
    events = heard(bar(0), bar(500), bar(0), bar(501), bar(1), bar(502))
    progress = [event.what.progress for event in events if isinstance(event.what, Activity)]
    assert progress == [(0, 1000), (0, 1000), (1, 1000), (502, 1000)]


def test_speakers_are_apart_and_events_stay_few() -> None:
    lines = [
        LogLine(number=n, text="Saving checkpoint" if n % 2 else f"step {n}", speaker=f"r{n % 3}", rank=n % 3)
        for n in range(6000)
    ]
    events = heard(*lines)
    assert {event.rank for event in events} == {0, 1, 2}
    assert len(events) < 600
    assert events[-1].line == 5999


def test_a_rank_that_says_that_it_is_done() -> None:
    texts = [
        "[rank 3] dataset exhausted after 31 batches, training done, exiting",
        "cleaning up, destroy_process_group()",
    ]
    for text in texts:
        left = [event for event in heard(LogLine(number=1, text=text, rank=3)) if isinstance(event.what, Left)]
        assert [event.rank for event in left] == [3]
        nobody = [event for event in heard(text) if isinstance(event.what, Left)]
        assert [event.rank for event in nobody] == [None]  # only the file may tell whose end it is
    (named,) = heard("Rank 3 finished")
    assert (named.rank, type(named.what)) == (3, Left)


def test_a_rank_that_goes_on_after_all() -> None:
    lines = [
        LogLine(number=1, text="data exhausted", rank=3),
        LogLine(number=2, text="step 7 loss 1.0", rank=3),
    ]
    assert not [event for event in heard(*lines) if isinstance(event.what, Left)]


def test_a_bad_end_is_no_good_one() -> None:
    line = LogLine(number=1, text="rank 3 finished with error 5, exiting now", rank=3)
    assert not [event for event in heard(line) if isinstance(event.what, Left)]
