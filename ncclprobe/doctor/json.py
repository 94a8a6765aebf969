"""A checkup for scripts.

In: a `Checkup`. Out: JSON, the same bytes for the same findings.
"""

import json
from dataclasses import asdict
from typing import TextIO

from ncclprobe.model.checkup import Checkup

SCHEMA_VERSION = "1"


def write(checkup: Checkup, stream: TextIO) -> None:
    """One object: schema_version, is_clear, hosts, advice, settings_of."""
    document = {"schema_version": SCHEMA_VERSION, "is_clear": checkup.is_clear, **asdict(checkup)}
    stream.write(json.dumps(document, indent=2, sort_keys=True) + "\n")
