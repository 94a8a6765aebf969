"""When and on which host the kernel said something, in every form that a log has."""

import json

import pytest

from ncclprobe.model.kernel import KernelEvent
from ncclprobe.parse.kernel_log import parse

WORDS = "NVRM: Xid (PCI:0000:9a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SECOND = 10**9
NOON = 1_795_951_186 * SECOND  # 2026-11-29 11:19:46


def one(text: str) -> KernelEvent:
    parsed = parse(text.encode())
    assert parsed.problems == ()
    (event,) = parsed.records
    return event


@pytest.mark.parametrize(
    ("head", "when_ns"),
    [
        ("", None),
        ("[  495.582151] ", None),
        ("[Nov29 11:19] ", None),
        ("[  +0.000022] ", None),
        ("3,1234,495582151,-;", None),
        ("[Sun Nov 29 11:19:46 2026] ", NOON),
        ("2026-11-29T11:19:46,582151+00:00 ", NOON + 582_151_000),
        ("2026-11-29T11:19:46,000001+02:00 ", NOON + 1_000),  # the clock on the wall, as every log has it
        ("Sun 2026-11-29 11:19:46 CET node1 kernel: ", NOON),
        ("2026-11-29T11:19:46-0800 node1 kernel: ", NOON),
        ("1795951186.582151 node1 kernel: ", NOON + 582_151_000),
        ("kern  :err   : 2026-11-29T11:19:46,582151+00:00 ", NOON + 582_151_000),
    ],
)
def test_the_time_of_the_wall_clock(head: str, when_ns: int | None) -> None:
    assert one(head + WORDS).when_ns == when_ns


def test_a_line_without_a_year_has_that_of_its_neighbour() -> None:
    first, second = parse(
        f"2026-11-29T11:19:46+0000 node1 kernel: {WORDS}\nNov 29 11:19:47 node1 kernel: {WORDS[:-1]}\n".encode()
    ).records
    assert (first.when_ns, second.when_ns) == (NOON, NOON + SECOND)


def test_times_since_boot_are_known_once_the_kernel_has_said_what_time_it_is() -> None:
    boot = "[    1.500000] rtc_cmos 00:01: setting system clock to 2026-11-29T11:19:46 UTC (1795951186)\n"
    assert one(f"{boot}[   11.500000] {WORDS}").when_ns == NOON + 10 * SECOND


@pytest.mark.parametrize(
    ("head", "host"),
    [
        ("", None),
        ("[  495.582151] ", None),
        ("[  495.582151] [T13944] ", None),
        ("[  495.582151][    C3] ", None),
        ("node02: [  495.582151] ", "node02"),
        ("10.0.0.2: [Sun Nov 29 11:19:46 2026] ", "10.0.0.2"),
        ("3: [  495.582151] ", None),
        ("Nov 29 11:19:46 node-1 kernel: [  495.5] ", "node-1"),
        ("jump: Nov 29 11:19:46 node-1 kernel: ", "node-1"),
        ("  \x1b[32m[  495.582151] \x1b[0m\x1b[33m", None),
    ],
)
def test_the_host_where_the_line_names_it(head: str, host: str | None) -> None:
    event = one(head + WORDS + "\r")
    assert event.host == host
    assert event.quote.endswith("fallen off the bus.")


def test_dmesg_in_json() -> None:
    entries = [{"pri": 6, "time": 1.5, "msg": "quiet"}, {"pri": 2, "time": 495.582151, "msg": WORDS}]
    event = one(json.dumps({"dmesg": entries}, indent=3))
    assert (event.line, event.when, event.when_ns, event.quote) == (11, "495.582151", None, WORDS)


def test_dmesg_in_json_that_is_cut_off() -> None:
    text = json.dumps({"dmesg": [{"time": 1.5, "msg": WORDS}, {"time": 2.5, "msg": WORDS.replace("9a", "9b")}]})
    assert one(text[:-40]).when == "1.5"


def test_the_journal_in_json() -> None:
    def entry(message: object, transport: str) -> dict[str, object]:
        return {
            "MESSAGE": message,
            "_TRANSPORT": transport,
            "_HOSTNAME": "node7",
            "__REALTIME_TIMESTAMP": "1795951186582151",
        }

    said = [entry(WORDS, "stdout"), entry("quiet", "kernel"), entry(list(WORDS.encode()), "kernel")]
    event = one("\n".join(json.dumps(item) for item in said))
    assert (event.line, event.host, event.when_ns) == (3, "node7", NOON + 582_151_000)
    pretty = one("\n".join(json.dumps(item, indent="\t") for item in said))
    assert (pretty.line, pretty.host) == (13, "node7")


def test_lines_are_counted_over_pieces_of_a_large_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncclprobe.parse.kernel_lines._PIECE_BYTES", 30)
    quiet = "[    1.000000] perf: interrupt took too long\n" * 5
    events = parse(f"{quiet}[ 2.0] {WORDS}\n{quiet}[ 3.0] {WORDS.replace('9a', '9b')}".encode()).records
    assert [event.line for event in events] == [6, 12]
