"""Speed and memory of `ncclprobe analyze` beside torch's `torchfrtrace`, on the same dumps, in one run.

In: nothing. Out: a table on standard output: a job of N ranks, 2,000 entries a rank with call stacks, one rank behind;
and where the time of `ncclprobe` goes. Memory is the peak of the whole process tree (proportional set size), sampled.
Machines are noisy: each tool runs in turn, medians are shown; look at the ratios.
"""

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from ncclprobe.analyze import case, verdict
from ncclprobe.inputs import open_inputs
from ncclprobe.loading import load_items
from ncclprobe.simulate.request import Request
from ncclprobe.simulate.writing import write

STEPS = 600  # enough to fill a ring of 2,000 entries
BOTH = (16, 64, 128, 256, 512)
ALONE = (1024, 4096)
_PARTS = {
    "build_timelines": "timelines",
    "find_mismatch": "match",
    "find_frontiers": "waits",
    "find_heads": "waits",
    "find_doubtful": "waits",
    "find_waits": "waits",
}


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


@contextmanager
def dumps_of(ranks: int) -> Iterator[Path]:
    """The dumps of a simulated job, for as long as they are needed: 0.3 MB a rank."""
    folder = Path(tempfile.mkdtemp(prefix="ncclprobe-bench-"))
    try:
        request = Request(name="stuck-in-python/data-loader", ranks=ranks, seed=1, job="ddp", steps=STEPS)
        write(request, folder / "job")
        yield folder / "job" / "dumps"
    finally:
        shutil.rmtree(folder)


def compare(ranks: int, dumps: Path, times: int) -> None:
    """A row per tool."""
    tools = {"ncclprobe": [tool("ncclprobe"), "analyze", str(dumps)]}
    if ranks in BOTH:
        tools["torchfrtrace"] = [tool("torchfrtrace"), "-p", "comm_lib_trace_rank_", str(dumps)]
    measured = defaultdict(list)
    for _ in range(times):
        for name, command in tools.items():
            measured[name].append(measure(command))
    for name, rows in measured.items():
        wall_s, used_s, peak_mb = (statistics.median(column) for column in zip(*rows, strict=True))
        row = f"{ranks:6} {name:12} {wall_s:8.1f} {used_s:8.1f} {peak_mb:8.0f} {1000 * used_s / ranks:8.1f}"
        print(row, flush=True)


def tool(name: str) -> str:
    """A command of this environment."""
    return str(Path(sys.executable).with_name(name))


def print_parts(dumps: Path) -> None:
    """Wall seconds of each part of one analysis; reading is done by workers, the rest by this process."""
    spent: dict[str, float] = defaultdict(float)
    with open_inputs([dumps]) as inputs:
        evidence = timed(load_items, "read and parse", spent)(inputs.items, inputs.hosts, inputs.gaps)
    with ExitStack() as patches:
        for name, part in _PARTS.items():
            patches.enter_context(mock.patch.object(case, name, timed(getattr(case, name), part, spent)))
        timed(verdict.analyze, "verdict", spent)(evidence)
    spent["verdict"] -= sum(spent[part] for part in set(_PARTS.values()))
    print("       " + ", ".join(f"{part} {spent_s:.2f} s" for part, spent_s in spent.items()), flush=True)


def timed(function: Callable[..., Any], part: str, spent: dict[str, float]) -> Callable[..., Any]:
    """The function, with its wall time added to its part's."""
    spent[part] += 0.0

    def run(*args: Any, **options: Any) -> Any:
        begin = time.monotonic()
        try:
            return function(*args, **options)
        finally:
            spent[part] += time.monotonic() - begin

    return run


def main() -> None:
    """Two rows per size where both tools run, then where the time goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", type=int, default=BOTH[0])
    parser.add_argument("--largest", type=int, default=ALONE[-1])
    parser.add_argument("--times", type=int, default=1, help="runs of each tool")
    parser.add_argument("--parts", type=Path, help="print where the time goes on these dumps, and nothing else")
    options = parser.parse_args()
    if options.parts:
        print_parts(options.parts)
        return
    print(f"{'ranks':>6} {'tool':12} {'wall s':>8} {'cpu s':>8} {'peak MB':>8} {'ms/rank':>8}")
    for ranks in (*BOTH, *ALONE):
        if options.smallest <= ranks <= options.largest:
            with dumps_of(ranks) as dumps:
                compare(ranks, dumps, options.times)
                subprocess.run([sys.executable, __file__, "--parts", str(dumps)], check=True)


if __name__ == "__main__":
    main()
