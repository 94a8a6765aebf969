"""One command names the guilty rank of a job over three real hosts, whatever is wrong with one of them."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncclprobe.repro import mismatched_logging
from tests.e2e.netns import RealHosts, real_hosts
from tests.e2e.netns_host import RealHost

pytestmark = pytest.mark.e2e

AT_STEP = 30
PLANTED = "log(step, mean_over_ranks(loss))"


def stuck(hosts: RealHosts) -> None:
    """Six ranks, two a host, that hang as soon as they have trained some steps; the program is the user's own file."""
    program = hosts.shared / "train.py"
    program.write_text(mismatched_logging.REPRO.path.read_text())
    job = hosts.torchrun(program, f"--at-step={AT_STEP}", "--backend=gloo", nproc=2)
    job.wait_for(f"step {AT_STEP - 1}", count=1, timeout_s=120)
    time.sleep(2)


@pytest.fixture(scope="module")
def hosts() -> Iterator[RealHosts]:
    """Three hosts and their stuck job, for all tests: harm that cannot be undone comes last in this file."""
    with real_hosts(3) as made:
        stuck(made)
        yield made


def ncclprobe(hosts: RealHosts, *arguments: str, timeout_s: float = 90) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from ncclprobe.cli.main import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=hosts.env, check=False)


def diagnose(hosts: RealHosts, *arguments: str) -> tuple[int, dict]:  # type: ignore[type-arg]
    asked = ["diagnose", "--hosts", str(hosts.hosts_file), "--format", "json", *arguments]
    done = ncclprobe(hosts, *asked)
    assert "Traceback" not in done.stderr
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def gaps_of(report: dict, who: str) -> list[dict]:  # type: ignore[type-arg]
    return [gap for gap in report["gaps"] if gap["who"] == who and "GPU" not in gap["what"]]


def assert_nothing_stays(host: RealHost, files_before: list[str]) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end and any("ncclprobe" in command for command in ours(host)):
        time.sleep(0.1)
    assert [command for command in ours(host) if "ncclprobe" in command] == []
    assert host.tmp_files() == files_before


def ours(host: RealHost) -> list[str]:
    return [command for command in host.processes() if "train.py" not in command and "distributed.run" not in command]


def assert_planted(report: dict) -> None:  # type: ignore[type-arg]
    verdict = report["verdict"]
    assert (verdict["cause"], verdict["guilty_ranks"]) == ("collective-extra", [0])
    assert verdict["guilty_hosts"] == ["node0"]
    assert PLANTED in verdict["where"][0]["source_line"]


def test_the_doctor_looks_at_every_host_and_at_the_settings_of_all_ranks(hosts: RealHosts) -> None:
    files_before = [host.tmp_files() for host in hosts]
    done = ncclprobe(hosts, "doctor", "--hosts", str(hosts.hosts_file), "--format", "json")
    checkup = json.loads(done.stdout)
    assert done.returncode == (0 if checkup["is_clear"] else 1)
    assert [host["host"] for host in checkup["hosts"]] == ["node0", "node1", "node2"]
    for host in checkup["hosts"]:
        states = {check["name"]: check["state"] for check in host["checks"]}
        assert (states["ranks"], states["stacks"], states["live_dump"], states["room"]) == ("ok", "ok", "ok", "ok")
    assert checkup["settings_of"] == "6 ranks"
    assert {rank for advice in checkup["advice"] for rank in advice["ranks"]} == set(range(6)), "no rank has a pipe"
    for host, before in zip(hosts, files_before, strict=True):
        assert_nothing_stays(host, before)


def test_with_live_dumps_the_rank_the_line_and_the_branch_are_certain(hosts: RealHosts) -> None:
    files_before = [host.tmp_files() for host in hosts]
    status, report = diagnose(hosts, "--live-dump")
    assert status == 1
    assert_planted(report)
    verdict = report["verdict"]
    assert (verdict["confidence"], verdict["victims"], report["status"]) == ("certain", "1-5", "complete")
    assert verdict["blocked_on"]["op"] == "all_gather"
    assert verdict["where"][0]["condition"].startswith("if rank == 0")
    assert {rank["host"] for rank in report["ranks"]} == {"node0", "node1", "node2"}
    for host, before in zip(hosts, files_before, strict=True):
        assert_nothing_stays(host, before)


def test_from_stacks_alone_the_same_rank_and_line_are_probable(hosts: RealHosts) -> None:
    status, report = diagnose(hosts)
    assert status == 1
    assert_planted(report)
    assert report["verdict"]["confidence"] == "probable"


@pytest.mark.parametrize("name", ["bundle", "bundle.tar.gz"])
def test_the_bundle_gives_the_same_report_byte_for_byte(hosts: RealHosts, tmp_path: Path, name: str) -> None:
    bundle = tmp_path / name
    shown = ncclprobe(
        hosts, "diagnose", "--hosts", str(hosts.hosts_file), "--live-dump", "--format", "json", "-o", str(bundle)
    )
    again = ncclprobe(hosts, "analyze", str(bundle), "--format", "json")
    assert (shown.returncode, again.returncode) == (1, 1)
    assert shown.stdout == again.stdout


def test_an_unknown_host_key_is_refused_until_new_ones_are_accepted(hosts: RealHosts) -> None:
    known = hosts.known_hosts.read_text()
    try:
        hosts.known_hosts.write_text("")
        refused = ncclprobe(hosts, "diagnose", "--hosts", str(hosts.hosts_file), "--format", "json")
        assert refused.returncode == 4
        assert "--accept-new-host-keys" in refused.stderr
        status, report = diagnose(hosts, "--accept-new-host-keys")
        assert status == 1
        assert_planted(report)
    finally:
        hosts.known_hosts.write_text(known)


def test_a_wrong_key_is_one_line_and_what_to_do(hosts: RealHosts) -> None:
    config = hosts.ssh_config.read_text()
    try:
        hosts.ssh_config.write_text(config.replace(str(hosts.identity), str(hosts.wrong_identity)))
        done = ncclprobe(hosts, "diagnose", "--hosts", str(hosts.hosts_file))
    finally:
        hosts.ssh_config.write_text(config)
    assert done.returncode == 4
    what, advice = done.stderr.strip().splitlines()[-2:]
    assert "refuses the login" in what
    assert advice.startswith("  -> ")


def test_a_host_that_is_down_is_one_gap_and_the_verdict_comes(hosts: RealHosts) -> None:
    hosts[2].link_down()
    begin = time.monotonic()
    try:
        status, report = diagnose(hosts, "--live-dump", "--deadline", "20")
    finally:
        hosts[2].link_up()
    assert time.monotonic() - begin < 30
    assert status in (1, 3)
    assert len(gaps_of(report, "node2")) == 1
    assert report["status"] == "partial"
    assert set(report["verdict"]["guilty_ranks"]) <= {0}
    assert report["verdict"]["confidence"] != "certain"


def test_a_host_that_accepts_and_never_answers(hosts: RealHosts) -> None:
    hosts[1].stop_sshd_answering()
    try:
        status, report = diagnose(hosts, "--live-dump", "--deadline", "20")
    finally:
        hosts[1].let_sshd_answer()
    assert status in (1, 3)
    (gap,) = gaps_of(report, "node1")
    assert "never speaks SSH" in gap["why"]
    assert gap["action"]
    assert set(report["verdict"]["guilty_ranks"]) <= {0}


def test_a_connection_cut_in_the_middle_of_the_stream_keeps_what_came(hosts: RealHosts) -> None:
    files_before = hosts[2].tmp_files()
    hosts[2].cut_after(60_000)
    status, report = diagnose(hosts, "--live-dump", "--deadline", "25")
    assert status in (1, 3)
    assert gaps_of(report, "node2")
    assert set(report["verdict"]["guilty_ranks"]) <= {0}
    assert report["status"] == "partial"
    assert_nothing_stays(hosts[2], files_before)


def test_a_host_with_no_python_to_be_found(hosts: RealHosts) -> None:
    hosts[1].hide_python()
    _, report = diagnose(hosts, "--live-dump")
    (gap,) = gaps_of(report, "node1")
    assert "no Python 3.10" in gap["why"]
    assert set(report["verdict"]["guilty_ranks"]) <= {0}
