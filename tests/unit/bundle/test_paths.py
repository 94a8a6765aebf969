import pytest

from ncclprobe.bundle.paths import MAX_NAME_BYTES, path_problem, safe_name, shown


@pytest.mark.parametrize("path", ["hosts/n/stacks/rank0.json", "hosts/n", "hosts/a b/ü/x", "hosts/...", "hosts/-rf"])
def test_item_paths_below_hosts_are_accepted(path: str) -> None:
    assert path_problem(path) is None


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("", "normalised"),
        ("/hosts/n/x", "absolute"),
        ("hosts/../x", "climbs"),
        ("hosts/n/..", "climbs"),
        ("hosts//x", "normalised"),
        ("hosts/./x", "normalised"),
        ("hosts/n/", "normalised"),
        ("hosts", "below hosts/"),
        ("manifest.json", "below hosts/"),
        ("hostsx/n", "below hosts/"),
        ("hosts/a\\b", "control characters or backslashes"),
        ("hosts/a\0", "control characters"),
        ("hosts/a\n", "control characters"),
        ("hosts/a\x1b[2J", "control characters"),
        ("hosts/a\u202eb", "control characters"),
        ("hosts/a\udcff", "control characters"),
        ("hosts/" + "x" * (MAX_NAME_BYTES + 1), "too long"),
        ("hosts/" + "ü" * 128, "too long"),
        ("hosts/" + "/".join(["x" * 200] * 6), "too long"),
        ("hosts/" + "/".join("x" * 20), "too long"),
    ],
)
def test_other_item_paths_are_refused_with_the_reason(path: str, says: str) -> None:
    assert says in (path_problem(path) or "accepted")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gpu-node_1.example", "gpu-node_1.example"),
        ("fe80::1%eth0", "fe80__1_eth0"),
        ("../../etc", "_._.._etc"),
        (".", "_"),
        ("", "_"),
        ("-rf", "_rf"),
        (".ssh", "_ssh"),
        ("a/b\0c\n", "a_b_c_"),
        ("ü", "_"),
    ],
)
def test_safe_name(text: str, name: str) -> None:
    assert safe_name(text) == name


def test_safe_name_is_short() -> None:
    assert len(safe_name("x" * 5000)) <= 100


def test_hostile_names_are_shown_on_one_short_printable_line() -> None:
    assert shown("a\x1b[2J\n\udcff").isprintable()
    assert len(shown("x" * 5000)) < 120
