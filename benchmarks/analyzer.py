"""Speed and memory of `ncclprobe analyze` beside torch's `torchfrtrace`, on the same dumps, in one run.

In: nothing. Out: a table on standard output: a job of N ranks, 2,000 entries a rank with call stacks, one rank behind.
Memory is the peak of the whole process tree (proportional set size), sampled. Machines are noisy: look at the ratios.
"""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from ncclprobe.simulate.request import Request
from ncclprobe.simulate.writing import write

STEPS = 600  # enough to fill a ring of 2,000 entries
BOTH = (16, 64, 128, 256, 512)
ALONE = (1024, 4096)


def measure(command: list[str]) -> tuple[float, float, float]:
    """Wall seconds, processor seconds, and peak memory in MB, of a command and all it starts."""
    begin, used_s = time.monotonic(), children_cpu_s()
    process = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, tree_bytes(process))
        time.sleep(0.05)
    wall_s = time.monotonic() - begin
    return wall_s, children_cpu_s() - used_s, peak / 1e6


def children_cpu_s() -> float:
    """Processor time of all children waited for so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tree_bytes(process: psutil.Process) -> int:
    """Proportional set size of a process and everything below it."""
    total = 0
    try:
        for member in [process, *process.children(recursive=True)]:
            total += member.memory_full_info().pss
    except psutil.Error:
        pass
    return total


def main() -> None:
    """One row per size and tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=ALONE[-1])
    options = parser.parse_args()
    print(f"{'ranks':>6} {'tool':12} {'wall s':>8} {'cpu s':>8} {'peak MB':>8} {'ms/rank':>8}")
    for ranks in (*BOTH, *ALONE):
        if ranks > options.largest:
            break
        folder = Path(tempfile.mkdtemp(prefix="ncclprobe-bench-"))
        request = Request(name="stuck-in-python/data-loader", ranks=ranks, seed=1, job="ddp", steps=STEPS)
        write(request, folder / "job")
        dumps = str(folder / "job" / "dumps")
        tools = {"ncclprobe": [str(Path(sys.executable).with_name("ncclprobe")), "analyze", dumps]}
        if ranks in BOTH:
            frtrace = str(Path(sys.executable).with_name("torchfrtrace"))
            tools["torchfrtrace"] = [frtrace, "-p", "comm_lib_trace_rank_", dumps]
        for tool, command in tools.items():
            wall_s, used_s, peak_mb = measure(command)
            row = f"{ranks:6} {tool:12} {wall_s:8.1f} {used_s:8.1f} {peak_mb:8.0f} {1000 * used_s / ranks:8.1f}"
            print(row, flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
