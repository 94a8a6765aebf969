"""How a checkup is shown."""

import io
import json

from ncclprobe.doctor import console
from ncclprobe.doctor import json as as_json
from ncclprobe.model.checkup import Advice, Check, CheckState, Checkup, HostCheckup, Level

GOOD = Check(name="stacks", state=CheckState.OK, what="py-spy may read all ranks", ranks=(0, 1, 2, 3))
BAD = Check(name="kernel_log", state=CheckState.BLOCKED, what="[bold]not[/] permitted", action="run as root")
ADVICE = Advice(level=Level.PROBLEM, rule="blocking-wait", ranks=(0, 1), text="no dump", action="unset", applies="all")


def checkup(*advice: Advice, **hosts: tuple[Check, ...]) -> Checkup:
    checked = [HostCheckup(host=name, python="3.11", checks=checks) for name, checks in hosts.items()]
    return Checkup(hosts=tuple(checked), advice=advice, settings_of="4 ranks")


def shown(given: Checkup, width: int = 100) -> str:
    stream = io.StringIO()
    console.write(given, stream, width, False)
    return stream.getvalue()


def test_hosts_that_are_alike_are_one_table() -> None:
    text = shown(checkup(node1=(GOOD,), node2=(GOOD, BAD), node3=(GOOD,)))
    assert "node1, node3 ──" in text
    assert text.count("py-spy may read all ranks (ranks 0-3)") == 2
    assert text.splitlines()[0] == "1 thing stands in the way"


def test_what_stands_in_the_way_comes_first_with_what_to_do() -> None:
    lines = shown(checkup(ADVICE, node1=(GOOD, BAD))).splitlines()
    assert lines[0] == "1 thing stands in the way and 1 problem in the settings"
    assert lines[2].split() == ["kernel_log", "blocked", "[bold]not[/]", "permitted"]
    assert lines[3].strip() == "-> run as root"
    assert "problem: no dump (ranks 0-1)" in lines
    assert "  -> unset   [blocking-wait; all]" in lines


def test_all_is_well() -> None:
    text = shown(checkup(node1=(GOOD,)))
    assert text.startswith("all evidence there is can be collected\n")
    assert "nothing is wrong with them" in text


def test_no_line_is_wider_than_asked() -> None:
    long = Check(name="gpu", state=CheckState.BLOCKED, what="x" * 300, action="y " * 100)
    assert max(map(len, shown(checkup(ADVICE, node1=(long,)), width=60).splitlines())) <= 60


def test_the_json_says_whether_all_is_clear() -> None:
    note = Advice(level=Level.NOTE, rule="r", ranks=(), text="t", action="a", applies="all")
    for given, is_clear in ((checkup(note, n=(GOOD,)), True), (checkup(n=(BAD,)), False), (checkup(ADVICE), False)):
        stream = io.StringIO()
        as_json.write(given, stream)
        document = json.loads(stream.getvalue())
        assert document["is_clear"] is given.is_clear is is_clear
        assert document["schema_version"] == "1"
    assert document["advice"][0]["ranks"] == [0, 1]
