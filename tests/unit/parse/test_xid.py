"""Errors of GPUs and NVSwitches: code, device, process, and which of them follow from others."""

import pytest

from ncclprobe.model.kernel import KernelFault, Xid
from ncclprobe.parse.kernel_log import MAX_KINDS, parse


def xid(words: str) -> Xid:
    (event,) = parse(f"[ 1.000000] NVRM: Xid {words}\n".encode()).records
    assert isinstance(event, Xid)
    return event


@pytest.mark.parametrize(
    ("words", "code", "bus_id", "pid", "text"),
    [
        (
            "(PCI:0000:9a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            79,
            "0000:9a:00.0",
            None,
            "GPU has fallen off the bus.",
        ),
        (
            "(PCI:0000:9A:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT",
            109,
            "0000:9a:00.0",
            1797828,
            "Ch 00000008, errorString CTX SWITCH TIMEOUT",
        ),
        ("(PCI:0000:18:00 GPU-I:05): 13, pid=7, name=python3, Graphics", 13, "0000:18:00.0", 7, "Graphics"),
        ("(0000:03:00): 31, Ch 00000010, engmask 00000101", 31, "0000:03:00.0", None, "Ch 00000010, engmask 00000101"),
        ("(PCI:000f:01:00.0): 48, pid=5", 48, "000f:01:00.0", 5, ""),
        ("(PCI:00000009:01:00): 62, 1234", 62, "0009:01:00.0", None, "1234"),
        ("(PCI:0000:9a:00): 999, pid=1, name=x, something new", 999, "0000:9a:00.0", 1, "something new"),
    ],
)
def test_forms(words: str, code: int, bus_id: str, pid: int | None, text: str) -> None:
    event = xid(words)
    assert (event.code, event.bus_id, event.pid, event.text) == (code, bus_id, pid, text)


@pytest.mark.parametrize(
    ("code", "is_fatal", "is_echo"),
    [(13, True, False), (31, True, False), (43, True, True), (45, False, True), (48, True, False), (63, False, False),
     (64, True, False), (74, True, False), (79, True, False), (92, False, False), (94, True, False),
     (95, True, False), (119, True, False), (121, False, False), (137, False, True), (154, False, False)],
)  # fmt: skip
def test_which_count(code: int, is_fatal: bool, is_echo: bool) -> None:
    event = xid(f"(PCI:0000:9a:00): {code}, pid=1, name=x, text")
    assert (event.is_fatal, event.is_echo) == (is_fatal, is_echo)
    assert event.meaning != "unknown"
    assert event.action


def test_nvlink_5_says_itself_whether_it_is_fatal() -> None:
    assert xid("(PCI:0000:9a:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x0)").is_fatal
    assert not xid("(PCI:0000:9a:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0)").is_fatal


def test_a_code_that_is_not_known_is_kept_as_it_is() -> None:
    event = xid("(PCI:0000:9a:00): 999, pid=1, name=x, something new")
    assert (event.meaning, event.is_fatal, event.is_echo, event.text) == ("unknown", False, False, "something new")


@pytest.mark.parametrize("words", ["(PCI:0000): 79, x", "(PCI:0000:9a:00): x", "PCI:0000:9a:00: 79", ""])
def test_what_is_none(words: str) -> None:
    assert parse(f"[ 1.000000] NVRM: Xid {words}\n".encode()).records == ()


def test_a_switch_and_its_lines_of_detail() -> None:
    head = "[ 1.000000] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): "
    fatal, other = parse(
        (
            f"{head}20034, Fatal, Link 30 LTSSM Fault Up\n"
            f"{head}20034, Severity 1 Engine instance 30 Sub-engine instance 00\n"
            f"{head}20034, Data {{0x50610002, 0x10100030}}\n"
            f"{head.replace('c1', 'c2')}28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)\n"
        ).encode()
    ).records
    assert isinstance(fatal, KernelFault)
    assert isinstance(other, KernelFault)
    assert (fatal.kind, fatal.device, fatal.is_fatal, fatal.line) == ("nvswitch", "0000:c1:00.0", True, 1)
    assert (other.device, other.is_fatal, other.line) == ("0000:c2:00.0", False, 4)


def test_of_a_repeated_error_the_first_and_the_last_are_kept() -> None:
    lines = [f"[ {n}.000000] NVRM: Xid (PCI:0000:9a:00): 31, pid=7, name=x, MMU Fault {n}" for n in range(1, 50)]
    parsed = parse("\n".join(lines).encode())
    assert [event.line for event in parsed.records] == [1, 49]
    assert parsed.problems == ()


def test_a_flood_of_different_ones_is_bounded_and_keeps_the_end() -> None:
    lines = (f"[ 1.0] NVRM: Xid (PCI:0000:9a:00): 31, pid={pid}, name=x, MMU" for pid in range(1, MAX_KINDS + 11))
    parsed = parse("\n".join(lines).encode())
    assert len(parsed.records) == MAX_KINDS
    assert parsed.records[-1].pid == MAX_KINDS + 10
    assert parsed.problems == (
        f"it tells of {MAX_KINDS + 10} kinds of events; only the last {MAX_KINDS} were looked at",
    )
