"""Entry point."""


def main() -> None:
    """Placeholder until the commands land."""
    raise SystemExit(4)
