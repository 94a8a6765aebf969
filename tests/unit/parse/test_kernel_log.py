"""Who was killed for memory, in every form that a kernel log has."""

from pathlib import Path

import pytest

from ncclprobe.model.errors import ParseError
from ncclprobe.model.kernel import OomKill
from ncclprobe.parse.kernel_log import MAX_KILLS, parse

DATA = Path(__file__).parents[2] / "data" / "kernel_log"
SIZES = "total-vm:323884kB, anon-rss:306176kB, file-rss:6648kB, shmem-rss:0kB"
KILL = f"Memory cgroup out of memory: Killed process 13944 (python3) {SIZES}, UID:0 pgtables:660kB oom_score_adj:0"
CHOICE = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    "oom_memcg=/slurm/job_42,task_memcg=/slurm/job_42/step_0,task=python3,pid=13944,uid=0"
)


def kills(*lines: str) -> tuple[OomKill, ...]:
    parsed = parse("".join(f"{line}\n" for line in lines).encode())
    assert parsed.problems == ()
    return parsed.records


def test_a_real_kill_in_five_forms() -> None:
    found = parse((DATA / "dmesg_forms.txt").read_bytes()).records
    assert [kill.line for kill in found] == [3, 4, 5, 6, 7]
    assert [kill.when for kill in found] == [
        "495.582151",
        "Sun Nov 29 16:39:46 2026",
        "2026-11-29T16:39:46,582151+00:00",
        "495.582151",
        "495.582151",
    ]
    assert {(kill.pid, kill.command, kill.anon_rss_kb, kill.cgroup) for kill in found} == {
        (13944, "python3", 306176, "/slurm/job_42")
    }


FORMS = {
    "": "",
    "[  495.582151] ": "495.582151",
    "[  495.582151 <    0.000022>] ": "495.582151 <    0.000022>",
    "[Nov29 16:39] ": "Nov29 16:39",
    "[  +0.000022] ": "+0.000022",
    "[Sun Nov  9 16:39:46 2026] ": "Sun Nov  9 16:39:46 2026",
    "2026-11-29T16:39:46,582151+00:00 ": "2026-11-29T16:39:46,582151+00:00",
    "kern  :err   : [  495.582151] ": "495.582151",
    "kern  :err   : 2026-11-29T16:39:46,582151+00:00 ": "2026-11-29T16:39:46,582151+00:00",
    "<3>[  495.582151] ": "495.582151",
    "3,1234,495582151,-;": "495.582151",
    "Nov 29 16:39:46 node-1 kernel: ": "Nov 29 16:39:46",
    "Nov  9 16:39:46 node-1 kernel: [  495.582151] ": "Nov  9 16:39:46",
    "Nov 29 16:39:46.582151 node-1 kernel: ": "Nov 29 16:39:46.582151",
    "2026-11-29T16:39:46+0000 node1 kernel: ": "2026-11-29T16:39:46+0000",
    "2026-11-29T16:39:46.582151+00:00 node1 kernel: [  495.5] ": "2026-11-29T16:39:46.582151+00:00",
    "Sun 2026-11-29 16:39:46 UTC node1 kernel: ": "Sun 2026-11-29 16:39:46 UTC",
    "1795970386.582151 node1 kernel: ": "1795970386.582151",
    "[  495.582151] node1 kernel: ": "495.582151",
}


@pytest.mark.parametrize(("head", "when"), FORMS.items(), ids=FORMS)
def test_every_form_of_time(head: str, when: str) -> None:
    (kill,) = kills(head + CHOICE, head + KILL)
    assert (kill.when, kill.line, kill.pid) == (when, 2, 13944)
    assert kill.cgroup == "/slurm/job_42/step_0"
    assert kill.quote.startswith((head + KILL)[:60].strip())


@pytest.mark.parametrize(
    "head", ["Nov 29 16:39:46 node-1 alice: ", "user  :err   : [  495.5] ", "train.py: ", "[rank0]: "]
)
def test_other_programs_cannot_speak_for_the_kernel(head: str) -> None:
    assert kills(head + CHOICE, head + KILL) == ()


@pytest.mark.parametrize(
    ("line", "pid", "command", "rss"),
    [
        (
            f"Out of memory: Killed process 7 (python3) {SIZES}, UID:1000 pgtables:1kB oom_score_adj:0",
            7,
            "python3",
            306176,
        ),
        (f"Out of memory (oom_kill_allocating_task): Killed process 7 (python3) {SIZES}", 7, "python3", 306176),
        (f"Killed process 7 (python3), UID 1000, {SIZES}", 7, "python3", 306176),
        (f"Killed process 7 (python3) {SIZES}", 7, "python3", 306176),
        ("Killed process 7 (python3) total-vm:1kB, anon-rss:0kB, file-rss:6kB", 7, "python3", 0),
        (f"Out of memory: Killed process 7 (pt main thread) {SIZES}", 7, "pt main thread", 306176),
        (f"Out of memory: Killed process 7 (a (b) c) {SIZES}", 7, "a (b) c", 306176),
        (f"Out of memory: Killed process 7 (x) total-vm:1k) {SIZES}", 7, "x) total-vm:1k", 306176),
        (f"Out of memory: Killed process 7 () {SIZES}", 7, "", 306176),
        ("Out of memory: Killed process 7 (python3)", 7, "python3", None),
    ],
)
def test_wordings_and_names(line: str, pid: int, command: str, rss: int | None) -> None:
    (kill,) = kills(f"[ 1.000000] {line}")
    assert (kill.pid, kill.command, kill.anon_rss_kb) == (pid, command, rss)


def test_linux_4_names_the_chosen_and_then_the_killed() -> None:
    (kill,) = kills(
        "[ 1.000000] Task in /docker/ab killed as a result of limit of /docker",
        "[ 1.000001] Memory cgroup out of memory: Kill process 10 (python3) score 950 or sacrifice child",
        f"[ 1.000002] Killed process 11 (python3) {SIZES}",
        "[ 1.000003] oom_reaper: reaped process 11 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    )
    assert (kill.pid, kill.cgroup, kill.line) == (11, "/docker/ab", 3)


def test_a_whole_cgroup_dies() -> None:
    found = kills(
        f"[ 1.0] {CHOICE}",
        f"[ 1.0] {KILL}",
        "[ 1.0] Tasks in /kubepods/pod7 are going to be killed due to memory.oom.group set",
        f"[ 1.0] Memory cgroup out of memory: Killed process 20 (pt_data_worker) {SIZES}",
        f"[ 1.0] Memory cgroup out of memory: Killed process 21 (python3) {SIZES}",
    )
    assert [(kill.pid, kill.cgroup) for kill in found] == [
        (13944, "/slurm/job_42/step_0"),
        (20, "/kubepods/pod7"),
        (21, "/kubepods/pod7"),
    ]


def test_a_cgroup_is_not_carried_over_to_the_next_kill() -> None:
    found = kills(
        f"[ 1.0] {CHOICE}",
        f"[ 1.0] {KILL}",
        f"[ 2.0] Out of memory: Killed process 30 (python3) {SIZES}",
        "[ 3.0] Task in /a killed as a result of limit of /a",
        "[ 3.0] Out of memory: Kill process 31 (python3) score 9 or sacrifice child",
        f"[ 3.0] Killed process 31 (python3) {SIZES}",
    )
    assert [kill.cgroup for kill in found] == ["/slurm/job_42/step_0", None, None]


def test_the_reaper_tells_when_the_kill_itself_is_gone() -> None:
    (kill,) = kills("[ 1.0] oom_reaper: reaped process 11 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:8kB")
    assert (kill.pid, kill.command, kill.anon_rss_kb) == (11, "python3", None)


@pytest.mark.parametrize(
    "line",
    [
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "Memory cgroup out of memory: Kill process 10 (python3) score 950 or sacrifice child",
        "Killed process (python3)",
        "Killed process 99999999999 (python3) total-vm:1kB",
        "oom_reaper: unable to reap pid:11 (python3)",
        "perf: interrupt took too long (2500 > 2500)",
    ],
)
def test_lines_that_are_no_kill(line: str) -> None:
    assert kills(f"[ 1.000000] {line}") == ()


def test_no_log_and_no_text() -> None:
    assert kills() == ()
    with pytest.raises(ParseError, match="binary"):
        parse(b"\x7fELF\0\0")


def test_broken_bytes_do_no_harm() -> None:
    (kill,) = parse(
        b"\xff\xfe\n[ 1.0] Out of memory: Killed process 7 (p\xff\x1b) total-vm:1kB, anon-rss:5kB\n"
    ).records
    assert (kill.command, kill.line) == ("p\ufffd\ufffd", 2)


def test_a_flood_is_bounded_and_keeps_the_end() -> None:
    lines = (f"[ 1.0] Out of memory: Killed process {pid} (python3) {SIZES}\n" for pid in range(1, MAX_KILLS + 51))
    parsed = parse("".join(lines).encode())
    assert len(parsed.records) == MAX_KILLS
    assert parsed.records[-1].pid == MAX_KILLS + 50
    assert parsed.problems == (f"it tells of {MAX_KILLS + 50} kills; only the last {MAX_KILLS} were looked at",)


def test_an_endless_line_is_cut() -> None:
    head = "[ 1.0] Out of memory: Killed process 7 (python3) "
    assert kills(head + SIZES + "x" * 1_000_000, "y" * 1_000_000)[0].pid == 7
    assert kills("x" * 1_000_000 + head + SIZES) == ()
