"""The report as JSON: the contract for users' scripts.

In: a `Report`. Out: one JSON object, two blanks of indentation, keys in the order of the types, no terminal escapes.
"""

import json
from dataclasses import asdict
from typing import TextIO

from ncclprobe.model.report import Report
from ncclprobe.report.renderer import Renderer


def write(report: Report, stream: TextIO, width: int | None, has_color: bool) -> None:
    """Writes the object and a newline. `width` and `has_color` do not matter here."""
    json.dump(asdict(report), stream, indent=2, ensure_ascii=True)
    stream.write("\n")


RENDERER = Renderer(name="json", write=write)
