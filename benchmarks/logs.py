"""Speed and memory of reading a log of a gigabyte.

In: nothing. Out: seconds and peak memory on standard output, for a log of mostly training lines, with some of NCCL's,
and timeouts at its end; and for one whose lines never repeat. The log is written to the temporary folder and removed.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

RANKS = 8
_STEP = (
    " [2026-05-05 21:{minute:02}:{second:02}] iteration {step:8}/  500000 | consumed samples: {samples:12} |"
    " elapsed time per iteration (ms): {ms:.1f} | learning rate: 1.500000E-04 | global batch size:  1024 | "
    " lm loss: {loss:.6E} |\n"
)
_NCCL = (
    "node01:{pid}:{tid} [0] NCCL INFO AllReduce: opCount {step:x} sendbuff 0x7f2c00 recvbuff 0x7f2c00 count {count}"
    " datatype 7 op 0 root 0 comm 0x55aa{rank:02x} [nranks=8] stream 0x5601\n"
)
_TIMEOUT = (
    "[rank{rank}]:[E505 22:31:00.0{rank}1971373 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=4711, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576,"
    " Timeout(ms)=1800000) ran for 1800034 milliseconds before timing out.\n"
)


def write(path: Path, size_bytes: int, *, is_repetitive: bool) -> None:
    """A log of about that size."""
    chance, step, written = Random(7), 0, 0
    words = [
        f"{chance.choice('bcdfgklmnprst')}{chance.choice('aeiou')}{chance.choice('lmnrst')}{i:x}" for i in range(5_000)
    ]
    with path.open("w", buffering=1 << 20) as log:
        while written < size_bytes:
            lines = [_line(step + offset, chance, words, is_repetitive=is_repetitive) for offset in range(200)]
            lines.append(_NCCL.format(pid=700, tid=800, step=step, count=chance.randrange(1 << 20), rank=0))
            step += len(lines)
            text = "".join(lines)
            written += log.write(text)
        log.writelines(_TIMEOUT.format(rank=rank) for rank in range(RANKS))


def _line(step: int, chance: Random, words: list[str], *, is_repetitive: bool) -> str:
    if not is_repetitive:
        return " ".join(chance.choices(words, k=24)) + "\n"
    minute, second = step // 60 % 60, step % 60
    return _STEP.format(
        minute=minute,
        second=second,
        step=step,
        samples=step * 1024,
        ms=6000 + chance.random() * 99,
        loss=chance.random(),
    )


def read(path: Path) -> None:
    """In a process of its own, so that its peak memory is its own."""
    from ncclprobe.parse.log.parse import parse

    started = time.process_time()
    with path.open("rb") as log:
        parsed = parse(log)
    seconds = time.process_time() - started
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    kinds = Counter(type(getattr(record, "what", record)).__name__ for record in parsed.records)
    print(f"{seconds:8.1f} {peak_mb:8.0f}  {dict(kinds)} {parsed.problems}", flush=True)


def main() -> None:
    """Two rows: repetitive lines, and lines that are all new."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read)
        return
    print(f"{'lines':>12} {'cpu s':>8} {'peak MB':>8}")
    for name, is_repetitive in (("alike", True), ("all new", False)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "train.log"
            write(path, options.megabytes * 10**6, is_repetitive=is_repetitive)
            print(f"{name:>12} ", end="", flush=True)
            subprocess.run([sys.executable, __file__, "--read", str(path)], check=True)


if __name__ == "__main__":
    main()
