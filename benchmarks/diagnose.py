"""Wall time from start to verdict, and the longest time that collecting held up a rank.

In: nothing. Out: a table on standard output: the 4-rank demonstration on this machine, and three hosts (network
namespaces with a real sshd each; needs root, iproute2 and openssh-server) with two ranks each. Medians of some runs.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ncclprobe.repro import mismatched_logging
from ncclprobe.repro.launch import launch
from tests.e2e.netns import missing_for_real_hosts, real_hosts
from tests.e2e.test_diagnose_hosts import stuck

RUNS = 5
WAYS = {"stacks": [], "stacks and live dumps": ["--live-dump"]}


def measure(where: str, target: Sequence[str], env: dict[str, str] | None = None) -> None:
    """Prints a row per way of asking."""
    for way, options in WAYS.items():
        runs = [one_run([*target, *options], env) for _ in range(RUNS)]
        seconds = statistics.median(run[0] for run in runs)
        pause_ms = 1000 * max(run[1] for run in runs)
        print(
            f"{where:24} {way:24} {seconds:6.2f} s   longest pause of a rank {pause_ms:5.1f} ms   {runs[0][2]}",
            flush=True,
        )


def one_run(arguments: Sequence[str], env: dict[str, str] | None) -> tuple[float, float, str]:
    """Seconds to the verdict, longest pause in seconds, and the verdict."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        command = [sys.executable, "-c", "from ncclprobe.cli.main import main; main()", "diagnose", *arguments]
        begin = time.monotonic()
        done = subprocess.run(
            [*command, "--format", "json", "-o", str(bundle)], capture_output=True, text=True, env=env, check=False
        )
        seconds = time.monotonic() - begin
        manifest = json.loads((bundle / "manifest.json").read_text())
        verdict = json.loads(done.stdout)["verdict"]
    pauses = [source["longest_pause_s"] or 0.0 for host in manifest["hosts"] for source in host["sources"]]
    return seconds, max(pauses, default=0.0), f"{verdict['cause']} {verdict['guilty_ranks']} {verdict['confidence']}"


def main() -> None:
    """Both places, one after the other."""
    with launch(mismatched_logging.REPRO, ranks=4, at_step=40) as job:
        job.wait_until_stuck(120)
        measure("this machine, 4 ranks", ["--job", job.run_id])
    missing = missing_for_real_hosts()
    if missing:
        print(f"three hosts: not measured, {missing}")
        return
    with real_hosts(3) as hosts:
        stuck(hosts)
        measure("3 hosts, 2 ranks each", ["--hosts", str(hosts.hosts_file)], hosts.env)


if __name__ == "__main__":
    main()
