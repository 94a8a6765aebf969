"""One form for the PCI addresses of every tool."""

import pytest

from ncclprobe.model.bus_id import device_key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("00000000:9B:00.0", "0000:9b:00.0"),
        ("0000:9b:00.0", "0000:9b:00.0"),
        ("0000:9b:00", "0000:9b:00.0"),
        ("PCI:0000:9b:00", "0000:9b:00.0"),
        ("9b:00.0", "0000:9b:00.0"),
        ("9b000", "0000:9b:00.0"),
        ("0x9b000", "0000:9b:00.0"),
        ("18000", "0000:18:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("f01000", "000f:01:00.0"),
        ("10000:01:1f.7", "10000:01:1f.7"),
        ("GPU-51c0aa1e", None),
        ("9b008", None),
        ("9bff0", None),
        ("", None),
        ("eth0", None),
    ],
)
def test_every_spelling(text: str, key: str | None) -> None:
    assert device_key(text) == key
