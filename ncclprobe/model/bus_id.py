"""PCI addresses of devices, which every tool spells in its own way.

In: `00000000:9B:00.0` (NVML), `0000:9b:00` (Xid), `PCI:0000:9b:00.0`, `9b:00.0` (lspci), `9b000` (NCCL). Out: one form.
"""

import re

_WRITTEN = re.compile(
    r"(?:PCI:)?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([01]?[0-9a-fA-F])(?:\.([0-7]))?", re.IGNORECASE
)
# NCCL prints the address as one number: the digits without their separators, leading zeros dropped.
_NUMBER = re.compile(r"(?:0x)?([0-9a-fA-F]{4,13})")


def device_key(text: str) -> str | None:
    """`0000:9b:00.0`: domain, bus, device and function in lower case; None when it is no PCI address."""
    written = _WRITTEN.fullmatch(text.strip())
    if written:
        domain, bus, device, function = written.groups()
        return _spelled(int(domain or "0", 16), int(bus, 16), int(device, 16), int(function or "0"))
    number = _NUMBER.fullmatch(text.strip())
    if number is None:
        return None
    value = int(number[1], 16)
    if value & 0xF > 7 or value >> 4 & 0xFF > 0x1F:
        return None
    return _spelled(value >> 20, value >> 12 & 0xFF, value >> 4 & 0xFF, value & 0xF)


def _spelled(domain: int, bus: int, device: int, function: int) -> str:
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"
