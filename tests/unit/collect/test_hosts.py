"""What `--hosts` may be, and what is said when it is wrong."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncclprobe.collect.hosts import MAX_HOSTS, Host, read_hosts
from ncclprobe.model.errors import UsageError


def names(text: str) -> list[str]:
    return [host.name for host in read_hosts(text, None)]


def error_of(text: str, stdin: io.StringIO | None = None) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read_hosts(text, stdin)
    assert "\n" not in str(caught.value)
    assert caught.value.advice
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node1", Host(name="node1", address="node1")),
        ("root@node1", Host(name="root@node1", address="node1", user="root")),
        ("a@corp.example@node1", Host(name="a@corp.example@node1", address="node1", user="a@corp.example")),
        ("root@node1:2222", Host(name="root@node1:2222", address="node1", user="root", port=2222)),
        ("node1:2222", Host(name="node1:2222", address="node1", port=2222)),
        ("node1:22", Host(name="node1:22", address="node1", port=22)),
        ("node1:8", Host(name="node1", address="node1")),
        ("node1:64", Host(name="node1", address="node1")),
        ("node1:65", Host(name="node1:65", address="node1", port=65)),
        ("root@node1:8", Host(name="root@node1:8", address="node1", user="root", port=8)),
        ("node1 slots=8", Host(name="node1", address="node1")),
        ("node1 slots=8 max_slots=8", Host(name="node1", address="node1")),
        ("::1", Host(name="::1", address="::1")),
        ("[::1]", Host(name="::1", address="::1")),
        ("[::1]:22", Host(name="[::1]:22", address="::1", port=22)),
        ("me@[fe80::1%eth0]:2200", Host(name="me@[fe80::1%eth0]:2200", address="fe80::1%eth0", user="me", port=2200)),
        ("10.0.0.1:2201", Host(name="10.0.0.1:2201", address="10.0.0.1", port=2201)),
    ],
)
def test_one_host(text: str, expected: Host) -> None:
    assert read_hosts(text, None) == (expected,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node[01-04,07]", ["node01", "node02", "node03", "node04", "node07"]),
        ("node[8-11]", ["node8", "node9", "node10", "node11"]),
        ("node[098-101]", ["node098", "node099", "node100", "node101"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a,b[1-2],c", ["a", "b1", "b2", "c"]),
        ("root@n[1-2].x:2222", ["root@n1.x:2222", "root@n2.x:2222"]),
        ("10.0.0.[1-2]:8", ["10.0.0.1", "10.0.0.2"]),
    ],
)
def test_sets(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@given(st.sets(st.integers(0, 9999), min_size=1, max_size=60), st.integers(0, 5))
def test_a_set_holds_what_was_folded_into_it(numbers: set[int], width: int) -> None:
    expected = [f"node{number:0{width}d}" for number in sorted(numbers)]
    spans = ",".join(f"{number:0{width}d}" for number in sorted(numbers))
    assert names(f"node[{spans}]") == expected
    ranges = ",".join(f"{a:0{width}d}-{b:0{width}d}" for a, b in runs(sorted(numbers), width))
    assert names(f"node[{ranges}]") == expected


def runs(numbers: list[int], width: int) -> list[tuple[int, int]]:
    """Longest runs of neighbours that are written with one width of padding."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1 and len(f"{number:0{width}d}") == len(f"{found[-1][0]:0{width}d}"):
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


@given(st.text(max_size=80))
def test_any_text_gives_hosts_or_one_line_of_what_and_one_of_what_to_do(text: str) -> None:
    try:
        hosts = read_hosts(text if text.strip() != "-" else "x", None)
    except UsageError:
        error_of(text if text.strip() != "-" else "x")
    else:
        assert all(not host.address.startswith("-") for host in hosts)


def test_a_file_has_comments_blank_lines_and_a_mark_at_its_start(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_bytes(b"\xef\xbb\xbf# my job\r\n\r\nnode1 slots=8 # first\r\n  root@node2:2222\r\nnode[3-4]:8\r\n")
    assert names(str(path)) == ["node1", "root@node2:2222", "node3", "node4"]


def test_a_name_in_the_folder_is_a_file_and_any_other_a_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert names("myhosts") == ["myhosts"]
    Path("myhosts").write_text("node1\n")
    assert names("myhosts") == ["node1"]


def test_standard_input() -> None:
    assert [host.name for host in read_hosts("-", io.StringIO("node1\nnode2\n"))] == ["node1", "node2"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("node1\n\nnode 2\n", "line 3: 'node 2' is more than a host"),
        ("node1\n# x\nnode1\n", "line 3: node1 is named already in line 1"),
        ("node1\nNODE1:8\n", "line 2: NODE1 is named already in line 1"),
        ("node[1-3]\nnode2\n", "line 2: node2 is named already in line 1"),
        ("node1\n-oProxyCommand=evil\n", "line 2: '-oProxyCommand=evil' is an option"),
        ("root@-oProxyCommand=evil\n", "line 1: '-oProxyCommand=evil' is no host name"),
        ("node1:99999\n", "line 1: '99999' is no port"),
        ("node1:0\n", "line 1: '0' is no port"),
        ("node1:x\n", "line 1: 'x' is no port"),
        ("node1 slots=many\n", "line 1: 'node1 slots=many' is more than a host"),
        ("node[3-1]\n", "line 1: the range 3-1"),
        ("node[1-04]\n", "line 1: the range 1-04"),
        ("node[1-\n", "line 1: 'node[1-' is no host name"),
        ("node[a]\n", "line 1: 'node[a]' is no host name"),
        ("node[]\n", "line 1: '[]' is no list"),
        ("a,,b\n", "line 1: an empty host name"),
        ("../etc\n", "line 1: '../etc' is no host name"),
        ("a..b\n", "line 1: 'a..b' is no host name"),
        ("\x1b[31mnode\n", "line 1: '\\x1b[31mnode' is no host name"),
        ("ro ot@node\n", "line 1: 'ro ot@node' is more than a host"),
        ("$(id)@node\n", "line 1: '$(id)' is no user name"),
        ("[::g]:22\n", "line 1: '[::g]' is no host name and no IPv6 address"),
        ("# nothing\n\n", "names no host"),
        ("", "names no host"),
        ("node1\0\n", "is not text"),
        (f"node[1-{MAX_HOSTS + 1}]\n", f"longer than {MAX_HOSTS} hosts"),
        ("n[0-999][0-999]\n", f"names more than {MAX_HOSTS} hosts"),
        (f"a[1-{MAX_HOSTS}]\nb\n", f"line 2: more than {MAX_HOSTS} hosts"),
    ],
)
def test_a_wrong_file_is_told_by_its_line(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text(content)
    assert expected in str(error_of(str(path)))


def test_a_missing_file() -> None:
    assert "does not exist" in str(error_of("no/such/file"))
    assert "does not exist" in str(error_of("hosts-that-are-not.txt"))


def test_a_folder(tmp_path: Path) -> None:
    assert "is a directory" in str(error_of(str(tmp_path)))


def test_a_binary_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_bytes(b"\x80\x81")
    assert "is not text" in str(error_of(str(path)))


def test_a_file_without_end() -> None:
    assert "is larger than 4 MiB" in str(error_of("/dev/zero"))


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)  # root, who may run the tests, could read any file
    assert "cannot be read: Permission denied" in str(error_of(str(tmp_path / "hosts")))


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    loop = tmp_path / "hosts"
    loop.symlink_to(loop)
    assert "cannot be read: Too many levels of symbolic links" in str(error_of(str(loop)))


def test_nothing_given() -> None:
    assert "--hosts is empty" in str(error_of("  "))
    assert "there is none" in str(error_of("-"))
    assert "standard input names no host" in str(error_of("-", io.StringIO("")))


def test_standard_input_that_is_no_text() -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8")
    with pytest.raises(UsageError, match="standard input is not text"):
        read_hosts("-", stdin)


def test_a_wrong_set() -> None:
    error = error_of("node1,node1")
    assert str(error) == "--hosts: node1 is named already in the same set"
