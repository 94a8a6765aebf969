"""Words of a host, fit to be shown.

In: text from a host or a program. Out: one short printable line.
"""

MAX_QUOTE = 200


def quoted(text: str, limit: int = MAX_QUOTE) -> str:
    """The text on one line, without control characters, cut at `limit` characters."""
    line = " ".join(text.split())
    shown = "".join(character if character.isprintable() else "?" for character in line[: limit + 1])
    return shown if len(line) <= limit else shown[: limit - 3] + "..."
