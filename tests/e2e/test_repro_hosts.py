"""A reproducer over two real hosts: it hangs, it is diagnosed by SSH, and nothing stays there however it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.e2e.netns import RealHosts, real_hosts

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_spec("torch") is None and not os.environ.get("CI"), reason="needs torch"),
]

# A rank that costs nothing: no torch, and a child in a session of its own, which a kill of the rank does not reach.
LIGHT_RANK = """
import os, subprocess, time
assert os.environ["GLOO_SOCKET_IFNAME"] == "eth0", "the way to the other host"
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("step 1 loss 0", flush=True)
time.sleep(600)
"""

# What `ncclprobe repro --hosts` does, in a process that can be killed: start, wait until stuck, say who runs, stay.
ASKER = """
import sys, time
from dataclasses import replace
from ncclprobe.cli.collection import make_target
from ncclprobe.rehearsal import Asked, start_on_hosts
from ncclprobe.repro.catalog import find
repro = replace(find("mismatched-logging"), program=sys.argv[2])
target = make_target(sys.argv[1], False, None, False)
with start_on_hosts(repro, target, Asked(ranks=3, at_step=1), sys.executable) as job:
    assert job.wait_until_stuck(30) == "stuck", job.logs.failure()
    print(job.processes, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[RealHosts]:
    with real_hosts(2) as made:
        yield made


def assert_nothing_stays(hosts: RealHosts) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(host.processes() or host.tmp_files() for host in hosts):
        time.sleep(0.1)
    assert [(host.processes(), host.tmp_files()) for host in hosts] == [([], []), ([], [])]


def test_the_planted_rank_is_found_over_ssh_and_the_job_goes(hosts: RealHosts) -> None:
    command = [sys.executable, "-c", "from ncclprobe.cli.main import main; main()", "repro", "mismatched-logging"]
    asked = ["--hosts", str(hosts.hosts_file), "--ranks", "2", "--at-step", "3", "--diagnose", "--format", "json"]
    done = subprocess.run([*command, *asked], capture_output=True, text=True, timeout=120, env=hosts.env, check=False)
    assert done.returncode == 0, done.stderr
    assert "node0: rank 0: " in done.stderr
    assert "; node1: rank 1: " in done.stderr
    assert f"ncclprobe diagnose --hosts {hosts.hosts_file} --job {hosts[0].address}:" in done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"]["guilty_hosts"] == ["node0"]
    assert {rank["host"] for rank in report["ranks"]} == {"node0", "node1"}
    assert_nothing_stays(hosts)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_nothing_stays_on_any_host_when_the_command_is_ended(hosts: RealHosts, end: signal.Signals) -> None:
    program = hosts.shared / "light.py"
    program.write_text(LIGHT_RANK)
    asker = subprocess.Popen(
        [sys.executable, "-c", ASKER, str(hosts.hosts_file), str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=hosts.env,
    )
    try:
        assert asker.stdout
        assert asker.stdout.readline().startswith("node0: rank 0: ")
        # The supervisor, the launcher, and of each rank two processes, beside what sshd runs for the session.
        ours = [[line for line in host.processes() if not line.startswith("sshd")] for host in hosts]
        assert list(map(len, ours)) == [6, 4]
        asker.send_signal(end)
        asker.wait(timeout=30)
        assert_nothing_stays(hosts)
    finally:
        asker.kill()
        asker.wait()
        asker.stdout.close()
